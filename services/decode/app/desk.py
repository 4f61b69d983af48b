"""The actor's writing: journals, rollouts, facts and the audit log, in the background.

Each kind has a queue and a task. What cannot be written now is tried again until it can: a
rollout that is not stored is simply not finished yet, and the planner's deadlines go on.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import astuple

from ebbtide import paths, streams
from ebbtide.errors import Temporary
from ebbtide.logs import Log
from ebbtide.ports import Blobs, Bus, Clock, FactMessage, Hot
from ebbtide.tracing import NO_SPANS, Spans
from ebbtide.wire import Dispatch, Fence, Finished, Journal, JournalRef, Rollout, encode
from services.decode.core.messages import Event, Journalled, Publish, Settled, Stored, Terminal
from services.decode.core.tracing import decoded

T = TypeVar("T")
RETRY_SECONDS = 0.5
_AT_ONCE = 1024


class Desk:
    """`post` takes the answers to the actor's machine.

    While it is still `drawing`, answers that end within `gather` seconds are stored as one object.
    """

    def __init__(
        self,
        *,
        blobs: Blobs,
        bus: Bus,
        hot: Hot,
        clock: Clock,
        log: Log,
        audit: Path | None,
        post: Callable[[Event], None],
        drawing: Callable[[], bool],
        gather: float,
        pod: str = "",
        spans: Spans = NO_SPANS,
    ) -> None:
        self._pod, self._spans = pod, spans
        self._blobs, self._bus, self._hot = blobs, bus, hot
        self._clock, self._log, self._audit, self._post = clock, log, audit, post
        self._drawing, self._gather = drawing, gather
        self.chunks: asyncio.Queue[tuple[JournalRef, Journal]] = asyncio.Queue()
        self.rollouts: asyncio.Queue[Rollout] = asyncio.Queue()
        self.settled: asyncio.Queue[Settled] = asyncio.Queue()
        self._unsaid: dict[Dispatch, FactMessage] = {}
        self._to_say = asyncio.Event()

    def publish(self, effect: Publish) -> None:
        """Have the facts published; one that waits already is not published twice."""
        self._unsaid.update((fact.dispatch, _message(fact, effect.to)) for fact in effect.facts)
        self._to_say.set()

    def settle(self, settled: Settled) -> None:
        """The planner has answered for this fact: nothing is to be said about it any more."""
        self._unsaid.pop(settled.fact.dispatch, None)
        self.settled.put_nowait(settled)

    def tasks(self) -> dict[str, Callable[[], Coroutine[Any, Any, None]]]:
        """What must run beside the machine, by name."""
        return {
            "journals": self._journal,
            "rollouts": self._store,
            "facts": self._publish,
            "settled": self._settle,
        }

    async def finish(self) -> None:
        """Wait until every settled fact is in the audit log."""
        await self.settled.join()

    async def _journal(self) -> None:
        while True:
            batch = await _all_of(self.chunks)
            await self._insist("journals", partial(self._hot.append, batch))
            marks = {ref.dispatch: ref.n_tokens for ref, _ in batch}
            self._post(Journalled(tuple(marks.items())))

    async def _store(self) -> None:
        while True:
            batch = await self._ended()
            await self._insist("rollouts", partial(self._put, batch))

    async def _ended(self) -> list[Rollout]:
        """What ends within a short time of the first; the last answers are kept waiting by none."""
        batch = await _all_of(self.rollouts)
        with suppress(TimeoutError):
            async with asyncio.timeout(self._gather):
                while self._drawing() and len(batch) < _AT_ONCE:
                    batch.append(await self.rollouts.get())
        return batch

    async def _put(self, batch: Sequence[Rollout]) -> None:
        """As one object, though more may have ended meanwhile: they are the next."""
        path = paths.rollouts(batch[0].key, batch[0].dispatch)
        refs = await self._blobs.put_all(path, [encode(rollout) for rollout in batch])
        for span in decoded(batch, self._pod, self._clock.wall()) if self._spans.on else ():
            self._spans.add(span)
        dispatches = [rollout.dispatch for rollout in batch]
        self._post(Stored(tuple(zip(dispatches, refs, strict=True))))

    async def _publish(self) -> None:
        while True:
            await self._to_say.wait()
            facts = [self._unsaid.pop(each) for each in list(self._unsaid)[:_AT_ONCE]]
            if not self._unsaid:
                self._to_say.clear()
            try:
                await self._bus.publish_facts(facts)
            except Temporary as error:
                # They stay in the outbox and are published again.
                self._log.warning("facts not published", n=len(facts), why=str(error))

    async def _settle(self) -> None:
        while True:
            batch = await _all_of(self.settled)
            if self._audit is not None:
                await asyncio.to_thread(_append, self._audit, b"".join(map(_line, batch)))
            for _ in batch:
                self.settled.task_done()
            # A cut is settled as soon as its sample goes on elsewhere, from this very journal.
            done = [s.fact for s in batch if s.verdict == "accepted"]
            try:
                await self._hot.forget([JournalRef(fact.key, fact.dispatch, 0) for fact in done])
            except Temporary as error:
                self._log.info("journals not dropped; they expire", why=str(error))

    async def _insist(self, what: str, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        while True:
            try:
                await write()
            except Temporary as error:
                self._log.warning("not written; trying again", what=what, why=str(error))
                await self._clock.sleep(RETRY_SECONDS)
            else:
                return


async def _all_of(queue: asyncio.Queue[T]) -> list[T]:
    """Everything that waits in `queue`, at least one."""
    found = [await queue.get()]
    while not queue.empty() and len(found) < _AT_ONCE:
        found.append(queue.get_nowait())
    return found


def _message(fact: Terminal, to: Fence | None) -> FactMessage:
    """The broker takes a fact for a repetition only where the same planner would hear it."""
    uid, tag = fact.key.job_uid, type(fact).__struct_config__.tag
    subject = streams.fact(uid, fact.dispatch.attempt, str(tag))
    planner = f"{to.attempt}.{to.planner_epoch}" if to else "-"
    return FactMessage(subject, encode(fact), f"{uid}:{_name(fact.dispatch)}:{tag}:{planner}")


def _name(hand: Dispatch) -> str:
    return f"{hand.attempt}.{hand.planner_epoch}.{hand.seq}"


def _line(settled: Settled) -> bytes:
    fact = settled.fact
    ref = fact.ref if isinstance(fact, Finished) else None
    row = {
        "key": astuple(fact.key),
        "dispatch": astuple(fact.dispatch),
        "verdict": settled.verdict,
        "path": ref.path if ref else "",
        "digest": ref.digest if ref else "",
    }
    return msgspec.json.encode(row) + b"\n"


def _append(path: Path, lines: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(lines)
        file.flush()
        os.fsync(file.fileno())
