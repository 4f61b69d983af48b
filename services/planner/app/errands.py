"""How each effect is done with the ports; answers go back to the core as events."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import msgspec

from ebbtide import paths, streams
from ebbtide.errors import (
    Conflict,
    Corrupt,
    DeadlineExceeded,
    EbbtideError,
    NotFound,
    Temporary,
)
from ebbtide.logs import Log
from ebbtide.ports import Consumer, Delivery, FactMessage
from ebbtide.tracing import NO_SPANS, Spans
from ebbtide.wire import CommandReply, Fence, LearnerReply, Ref, ScoreRequest, digest, encode
from services.planner.app import pool
from services.planner.app.data import PromptReader
from services.planner.app.world import World
from services.planner.core.effects import (
    LEARNER,
    PREFILL,
    Acknowledge,
    AskScores,
    CommitManifest,
    Effect,
    Forget,
    LoadPrompts,
    Note,
    Report,
    ScalePool,
    Send,
    WriteBlob,
)
from services.planner.core.events import (
    Event,
    ManifestCommitted,
    PromptsLoaded,
    PromptsLost,
    Replied,
)
from services.planner.core.tracing import step_spans

Work = Coroutine[Any, Any, None]
_TRIES = 20
_PAUSE = 0.25
_LONGEST_PAUSE = 5.0
_REPLIES = msgspec.msgpack.Decoder(CommandReply | LearnerReply)


class Errands:
    """`deliveries`: what each token acknowledges; the one who fetches fills it."""

    def __init__(
        self,
        *,
        world: World,
        fence: Fence,
        post: Callable[[Event], None],
        log: Log,
        spans: Spans = NO_SPANS,
    ) -> None:
        self._spans = spans
        self._world, self._fence, self._post, self._log = world, fence, post, log
        self._prompts = PromptReader(world.blobs)
        self._wish = ScalePool(0, ())
        self.consumer: Consumer | None = None
        self.deliveries: dict[int, Delivery] = {}
        self._errands: Mapping[type, Callable[[Any], Work]] = {
            Acknowledge: self._acknowledge,
            Send: self._send,
            AskScores: self._ask_scores,
            LoadPrompts: self._load_prompts,
            Forget: self._forget,
            ScalePool: self._scale,
            Report: self._report,
        }

    def work(self, effect: Effect) -> Work | None:
        """What does `effect`; None where it is done already."""
        if isinstance(effect, Note):
            self._log.info(effect.event, **effect.fields)
            return None
        return self._errands[type(effect)](effect)

    async def write(self, effect: Effect) -> None:
        """Write what later records name; it is durable when this returns."""
        if isinstance(effect, CommitManifest):
            await self._insist(lambda: self._commit(effect))
        elif isinstance(effect, WriteBlob):
            await self._insist(lambda: self._put(effect.path, effect.data))

    # --- what must be durable ---------------------------------------------------------------------

    async def _put(self, path: str, data: bytes) -> None:
        await self._world.blobs.put(path, data)

    async def _commit(self, effect: CommitManifest) -> None:
        """The first manifest of a step counts: a repeat finds what its predecessor wrote."""
        data = effect.data
        if not await self._world.blobs.put_if_absent(effect.path, data):
            data = await self._world.blobs.get(effect.path)
        ref = Ref(effect.path, digest(data), len(data))
        self._post(ManifestCommitted(effect.step, ref))

    async def _insist(self, write: Callable[[], Work]) -> None:
        pause = _PAUSE
        for _ in range(_TRIES):
            try:
                return await write()
            except (Temporary, NotFound, Conflict) as error:
                self._log.warning("not written; trying again", why=str(error))
                await self._world.clock.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
        return await write()

    # --- messages -----------------------------------------------------------------------------------

    async def _acknowledge(self, effect: Acknowledge) -> None:
        found = (self.deliveries.pop(token, None) for token in effect.tokens)
        assert self.consumer is not None, "facts come from a consumer"
        await self.consumer.ack([delivery for delivery in found if delivery is not None])

    async def _send(self, effect: Send) -> None:
        self._post(Replied(effect.call, await self._ask(effect)))

    async def _ask(self, effect: Send) -> CommandReply | LearnerReply | None:
        subject = self._subject(effect.to)
        try:
            data = await self._world.bus.request(subject, encode(effect.command), effect.timeout)
            reply: CommandReply | LearnerReply = _REPLIES.decode(data)
        except DeadlineExceeded:
            return None
        except (EbbtideError, msgspec.DecodeError) as error:  # the core waits for an answer
            self._log.warning("no usable answer", to=effect.to or "learner", why=str(error))
            return None
        return reply

    def _subject(self, to: str) -> str:
        uid = self._world.settings.job_uid
        if to == LEARNER:
            return streams.learner(uid, self._fence.attempt)
        if to.startswith(PREFILL):
            return streams.prefill(uid, to.removeprefix(PREFILL))
        return streams.actor(uid, to)

    async def _ask_scores(self, effect: AskScores) -> None:
        """A request that cannot be queued is asked for again by the core, scorers being idle."""
        facts = [self._request(request, effect.ask) for request in effect.requests]
        await self._insist(lambda: self._world.bus.publish_facts(facts))

    def _request(self, request: ScoreRequest, ask: int) -> FactMessage:
        """Askings differ by planner and number, so that the stream absorbs only its own repeats."""
        key, uid = request.key, self._world.settings.job_uid
        name = f"{uid}:{key.step_issued}.{key.group}.{key.index}.{key.turn}"
        ident = f"{name}:{self._fence.attempt}.{self._fence.planner_epoch}.{ask}"
        return FactMessage(streams.scoring(uid), encode(request), ident)

    # --- the rest -----------------------------------------------------------------------------------

    async def _load_prompts(self, effect: LoadPrompts) -> None:
        async def load() -> None:
            train = await self._prompts.read(effect.train)
            held_out = await self._prompts.read(effect.eval)
            self._post(PromptsLoaded(effect.step, train, held_out, effect.turn))

        try:
            await self._insist(load)
        except (NotFound, Corrupt) as error:
            self._post(PromptsLost(str(error)))

    async def _forget(self, effect: Forget) -> None:
        for path in effect.paths:
            await self._world.blobs.delete(path)

    async def _scale(self, effect: ScalePool) -> None:
        """Whoever has to try again writes what is wanted by then, not what was before."""
        cluster, self._wish = self._world.cluster, effect
        if cluster is None:
            return

        async def scale() -> None:
            if not await pool.scale(cluster, self._world.settings, self._wish):
                self._log.warning("the pool of that name is another job's")

        await self._insist(scale)

    async def _report(self, effect: Report) -> None:
        """Losing a report loses no sample, so it is tried for a while only."""
        report, clock = effect.report, self._world.clock
        # Not reckoned from now: reports wait for the ledger, and actors' times would overlap.
        opened = clock.wall() - clock.now() + effect.opened
        whole = report.model_copy(update={"started_at": opened})
        data = whole.model_dump_json(by_alias=True).encode()
        path = paths.step_report(self._world.settings.job_uid, report.step)
        await self._insist(lambda: self._put(path, data))
        for span in step_spans(whole, self._world.settings.pod) if self._spans.on else ():
            self._spans.add(span)
        rewards = report.rewards.mean if report.rewards else None
        held_out = report.evaluation.mean if report.evaluation else None
        self._log.info(
            "step committed",
            step=report.step,
            seconds=round(report.seconds, 3),
            reward=rewards,
            eval=held_out,
            accepted=report.samples.accepted,
            abandoned=report.samples.abandoned,
            restarted=report.samples.restarted,
        )
