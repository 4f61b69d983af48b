"""Measures an engine: time per token by batch and context, prefill, hand-over of KV, loading."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ebbtide.errors import Permanent
from ebbtide.ports import (
    Admission,
    Engine,
    EngineFailed,
    EngineFinished,
    Imported,
    KvData,
    NewTokens,
    Transfer,
)
from ebbtide.profiles import ProfileFile
from ebbtide.wire import Assign, Dispatch, PolicyRef, PromptRef, Ref, SampleKey, Sampling, pack_ints
from services.decode.core.measuring import Load, Point, contexts, grid, loads, suspects

_TRIES = 2
"""Each point is measured so often; the fastest counts, for what disturbs only slows down."""
_ROUNDS = 5
"""So often points are looked at for such that were disturbed, and these measured again."""
_PATIENCE = 600.0
"""Seconds after which an engine that says nothing has failed."""
READER = "profile-reader"
_HOLD_SECONDS = 60.0

Said = Callable[[int, int, str], None]
"""Gets points done, points in all, and what comes next."""


@dataclass(frozen=True)
class Subject:
    """What is measured. `vocab`: token ids below it are safe to use as prompts."""

    engine: Engine
    policy: PolicyRef
    index: Path
    width: int
    vocab: int


@dataclass(frozen=True)
class Wires:
    """The two ends of a hand-over on this machine; None where there is no shared memory."""

    writer: Transfer
    reader: Transfer


async def measure(
    subject: Subject,
    *,
    batches: Sequence[int],
    tokens: int,
    wires: Wires | None,
    said: Said,
    names: Mapping[str, str],
    startup: Mapping[str, float],
) -> ProfileFile:
    """The whole profile. `tokens` are written by each sample of each point.

    names: `engine`, `model`, `gpu`; startup: seconds by stage up to here, loading included.
    """
    probe = _Probe(subject, tokens)
    todo = loads(batches, width=subject.width, tokens=tokens)
    found: dict[int, list[Point]] = {}
    for done, load in enumerate(todo):
        said(done, len(todo), f"batch {load.batch}, prompts of {load.prompt} tokens")
        found.setdefault(load.batch, []).append(await probe.point(load))
    await _once_more(probe, todo, found, said)
    said(len(todo), len(todo), "prefill, hand-over and loading")
    axis = contexts(found)
    per_token, rate = await _hand_over(subject, wires) if wires else (0, 0.0)
    return ProfileFile(
        version=1,
        engine=names["engine"],
        model=names["model"],
        gpu=names["gpu"],
        tensor_parallel=1,
        batches=tuple(found),
        contexts=tuple(axis),
        seconds=grid(found, axis),
        prefill_seconds_per_token=await probe.prefill_seconds(),
        startup=dict(startup),
        wake_seconds=sum(startup.values()),  # no engine sleeps yet: waking is starting
        catch_up_seconds=await _loading(subject),
        kv_tokens=max(subject.engine.stats().kv_total, 1),
        kv_bytes_per_token=per_token,
        handover_bytes_per_second=rate,
    )


async def _once_more(
    probe: _Probe, todo: Sequence[Load], found: dict[int, list[Point]], said: Said
) -> None:
    """Measure again what a larger load was far faster than; the faster time counts."""
    by_batch = {batch: [load for load in todo if load.batch == batch] for batch in found}
    for _ in range(_ROUNDS):
        for batch, at in suspects(found):
            said(len(todo), len(todo), f"batch {batch} again, it was disturbed")
            again = await probe.point(by_batch[batch][at])
            found[batch][at] = min(found[batch][at], again, key=lambda point: point.seconds)


class _Probe:
    """Runs samples through the engine and times them; each dispatch is new."""

    def __init__(self, subject: Subject, tokens: int) -> None:
        self._subject, self._tokens, self._next = subject, tokens, 0

    async def point(self, load: Load) -> Point:
        """The fastest try: all samples begin together, with one prompt, which is computed once."""
        tries = [await self._seconds(load) for _ in range(_TRIES)]
        return Point(load.batch * (load.prompt + self._tokens / 2), min(tries))

    async def prefill_seconds(self) -> float:
        """Per token of a prompt: the longest against the shortest, so that what is fixed cancels."""
        long, short = max(self._subject.width - 1, 2), 1
        tries = [(await self._first(long), await self._first(short)) for _ in range(_TRIES)]
        return max(min(a - b for a, b in tries), 0.0) / (long - short)

    async def _seconds(self, load: Load) -> float:
        ends = await self._run(load, self._tokens)
        return statistics.median(end.decode / self._tokens for end in ends)

    async def _first(self, prompt: int) -> float:
        [end] = await self._run(Load(1, prompt), 1)
        return end.prefill

    async def _run(self, load: Load, tokens: int) -> list[EngineFinished]:
        engine, salt = self._subject.engine, self._next
        prompt = pack_ints(1 + (np.arange(load.prompt) + 7 * salt) % (self._subject.vocab - 1))
        for _ in range(load.batch):
            engine.submit(self._admission(prompt, tokens))
        return await _ends(engine, load.batch)

    def _admission(self, prompt: bytes, tokens: int) -> Admission:
        number = self._next
        self._next += 1
        assign = Assign(
            key=SampleKey("profile", 0, number, 0),
            dispatch=Dispatch(1, 1, number),
            policy=self._subject.policy,
            prompt_id="profile",
            prompt_ref=PromptRef(Ref("profile", "", 0), 0),
            sampling=Sampling(1.0, ()),
            noise_key=b"profile %d" % number,
            max_new_tokens=tokens,
        )
        return Admission(assign, prompt)


async def _ends(engine: Engine, samples: int) -> list[EngineFinished]:
    found: list[EngineFinished] = []
    deadline = time.monotonic() + _PATIENCE
    while len(found) < samples:
        for event in await engine.events(timeout=1.0):
            if isinstance(event, EngineFailed):
                raise Permanent(f"the engine failed ({event.code}): {event.detail}")
            assert isinstance(event, EngineFinished | NewTokens), "nothing is cut here"
            found += [event] if isinstance(event, EngineFinished) else []
        if time.monotonic() > deadline:
            raise Permanent(f"the engine has not finished in {_PATIENCE:.0f} s")
    return found


async def _hand_over(subject: Subject, wires: Wires) -> tuple[int, float]:
    """Bytes of KV per token, and bytes a second from process to process; 0 where there is none."""
    if not subject.engine.caps.kv_export:
        return 0, 0.0
    text = pack_ints(1 + np.arange(subject.width) % (subject.vocab - 1))
    kv = await subject.engine.prefill(subject.policy, text)
    seconds = min([await _once(kv, wires) for _ in range(1 + _TRIES)])
    return max(kv.data.nbytes // kv.key.n_tokens, 1), kv.data.nbytes / seconds


async def _once(kv: KvData, wires: Wires) -> float:
    began = time.perf_counter()
    ticket = await wires.writer.export(kv, reader=READER, seconds=_HOLD_SECONDS)
    pulled = await wires.reader.pull(ticket, wanted=kv.key, seconds=_HOLD_SECONDS)
    if not isinstance(pulled, Imported):
        raise Permanent(f"the KV was not handed over: {pulled.why}")
    return time.perf_counter() - began


async def _loading(subject: Subject) -> float:
    """Seconds to load a policy into an engine that had one."""
    began = time.perf_counter()
    await subject.engine.load(subject.policy, subject.index)
    return time.perf_counter() - began
