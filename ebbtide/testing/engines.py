"""Samples for engines, and what they made of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from ebbtide.ports import (
    Admission,
    Engine,
    EngineCut,
    EngineEvent,
    EngineFailed,
    EngineFinished,
    NewTokens,
    Resumed,
)
from ebbtide.wire import (
    Assign,
    Dispatch,
    PolicyRef,
    PromptRef,
    Ref,
    SampleKey,
    Sampling,
    pack_ints,
    unpack_floats,
    unpack_ints,
)

PATIENCE = 60.0
"""Seconds after which a silent engine is a failure."""


def admission(
    policy: PolicyRef,
    *,
    seq: int = 0,
    prompt: Sequence[int] = (5, 6, 7),
    max_new: int = 8,
    stops: tuple[int, ...] = (),
    temperature: float = 1.0,
    noise: bytes | None = None,
    resumed: EngineCut | None = None,
) -> Admission:
    """Sample `seq`, drawing from noise of its own unless `noise` is given."""
    assign = Assign(
        key=SampleKey("job", 0, seq, 0),
        dispatch=Dispatch(1, 1, seq),
        policy=policy,
        prompt_id=str(prompt),
        prompt_ref=PromptRef(Ref("prompts", "", 0), 0),
        sampling=Sampling(temperature, stops),
        noise_key=noise if noise is not None else b"noise %d" % seq,
        max_new_tokens=max_new,
    )
    again = Resumed(resumed.tokens, resumed.logprobs, resumed.spans) if resumed else None
    return Admission(assign, pack_ints(prompt), again)


@dataclass(frozen=True)
class Outcome:
    """All that an engine said about one dispatch: chunks in order, then how it ended."""

    chunks: tuple[NewTokens, ...]
    ends: tuple[EngineFinished | EngineCut | EngineFailed, ...]

    @property
    def end(self) -> EngineFinished | EngineCut:
        """The one terminal event, which is no failure."""
        assert len(self.ends) == 1, self.ends
        assert not isinstance(self.ends[0], EngineFailed), self.ends[0]
        return self.ends[0]

    @property
    def finished(self) -> EngineFinished:
        assert isinstance(self.end, EngineFinished)
        return self.end

    @property
    def failure(self) -> EngineFailed:
        """The one terminal event, which is a failure."""
        assert len(self.ends) == 1
        assert isinstance(self.ends[0], EngineFailed), self.ends[0]
        return self.ends[0]

    @property
    def tokens(self) -> list[int]:
        return [int(token) for token in unpack_ints(self.end.tokens)]

    @property
    def logprobs(self) -> list[float]:
        return [float(value) for value in unpack_floats(self.end.logprobs)]


async def collect(engine: Engine, n: int, *, patience: float = PATIENCE) -> list[EngineEvent]:
    """Events until `n` dispatches have ended, and whatever came with the last of them."""
    events: list[EngineEvent] = []
    async with asyncio.timeout(patience):
        while sum(not isinstance(event, NewTokens) for event in events) < n:
            events += await engine.events(timeout=1.0)
    return events


def outcomes(events: Sequence[EngineEvent]) -> dict[int, Outcome]:
    """Events by the sequence number of their dispatch."""
    by: dict[int, list[EngineEvent]] = {}
    for event in events:
        by.setdefault(event.dispatch.seq, []).append(event)
    return {seq: _outcome(those) for seq, those in by.items()}


def _outcome(events: list[EngineEvent]) -> Outcome:
    chunks = tuple(event for event in events if isinstance(event, NewTokens))
    ends = tuple(event for event in events if not isinstance(event, NewTokens))
    return Outcome(chunks, ends)


async def decode(
    engine: Engine, admissions: Sequence[Admission], *, patience: float = PATIENCE
) -> dict[int, Outcome]:
    """Submit all, wait for all."""
    for each in admissions:
        engine.submit(each)
    return outcomes(await collect(engine, len(admissions), patience=patience))
