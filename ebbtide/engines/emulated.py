"""The emulated engine: no model. Lengths come from a distribution or a trace, times from a curve.

For planning and tests at scale: the control plane is the real one, tokens and log-probabilities
are plausible and a function of (noise key, position), as the torch engine's are.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ebbtide.engines.emulation import Emulated, Emulation
from ebbtide.engines.mailbox import Seen
from ebbtide.engines.policies import read_index
from ebbtide.engines.samples import open_sample
from ebbtide.errors import Refused
from ebbtide.ports import (
    Admission,
    Clock,
    EngineCaps,
    EngineEvent,
    EngineFailed,
    KvData,
    Loaded,
)
from ebbtide.wire import Dispatch, EngineStats, PolicyRef


class EmulatedEngine:
    """`ebbtide.ports.Engine` over an `Emulation`, on any clock; runs inside the event loop."""

    def __init__(self, params: Emulated, *, clock: Clock) -> None:
        self._params = params
        self._clock = clock
        self._emulation: Emulation | None = None
        self._posted: list[EngineEvent] = []
        self._seen = Seen()
        self._kick = asyncio.Event()
        self._past = EngineStats()

    @property
    def caps(self) -> EngineCaps:
        return EngineCaps(
            positional_noise=True,
            kv_export=False,
            block_size=1,
            kv_layout="",
            sleeps=True,
            reference=False,
        )

    async def load(self, policy: PolicyRef, index: Path) -> Loaded:
        """Reads the index alone; the probe's answer is the index's own, there being no model."""
        if self._emulation and not self._emulation.idle:
            raise Refused("a policy is loaded only while idle")
        self._retire()
        held = read_index(index, policy)
        self._params = replace(self._params, vocab=_vocabulary(index.parent, self._params.vocab))
        self._emulation = Emulation(self._params, held.policy, self._clock.now())
        return Loaded(held.policy, held.probe_logprobs)

    def submit(self, admission: Admission) -> None:
        if self._seen.first(admission.assign.dispatch):
            self._post(self._submitted(admission))

    def cut(self, dispatch: Dispatch, *, export: bool = False) -> None:  # noqa: ARG002
        if self._emulation:
            self._post(self._emulation.cut(dispatch, self._clock.now()))

    async def prefill(self, policy: PolicyRef, tokens: bytes) -> KvData:  # noqa: ARG002
        raise Refused("the emulated engine has no keys and values")

    async def events(self, timeout: float) -> Sequence[EngineEvent]:
        deadline = self._clock.now() + timeout
        while not (events := self._collect()) and (left := deadline - self._clock.now()) > 0:
            await self._pause(min(left, self._quiet_for()))
        return events

    def stats(self) -> EngineStats:
        emulation, slots, past = self._emulation, self._params.slots, self._past
        if emulation is None:
            return EngineStats(
                slots=slots,
                decode_tokens=past.decode_tokens,
                prefill_tokens=past.prefill_tokens,
                prefill_shared=past.prefill_shared,
            )
        return EngineStats(
            running=len(emulation.rows),
            waiting=len(emulation.waiting),
            slots=slots,
            kv_used=emulation.kv_used,
            kv_total=slots * self._params.width,
            tpot=emulation.tpot,
            decode_tokens=past.decode_tokens + emulation.decoded,
            prefill_tokens=past.prefill_tokens + emulation.prefilled,
            prefill_shared=past.prefill_shared + emulation.shared,
        )

    async def sleep(self) -> None:
        if self._emulation and not self._emulation.idle:
            raise Refused("an engine sleeps only while idle")
        self._retire()

    async def close(self) -> None:
        self._emulation = None

    def _retire(self) -> None:
        if self._emulation:
            self._past = self.stats()
        self._emulation = None

    def _submitted(self, admission: Admission) -> list[EngineEvent]:
        emulation, now = self._emulation, self._clock.now()
        dispatch, policy = admission.assign.dispatch, admission.assign.policy
        if emulation is None or policy != emulation.policy:
            held = emulation.policy.n if emulation else "none"
            detail = f"policy {policy.n} was asked for, loaded is {held}"
            return [EngineFailed(dispatch, "policy", detail)]
        vocab, width = self._params.vocab, self._params.width
        try:
            return emulation.submit(open_sample(admission, vocab=vocab, width=width, now=now), now)
        except Refused as refused:
            return [EngineFailed(dispatch, "prompt", refused.detail)]

    def _post(self, events: list[EngineEvent]) -> None:
        self._posted += events
        self._kick.set()

    def _collect(self) -> list[EngineEvent]:
        posted, self._posted = self._posted, []
        return posted + (self._emulation.advance(self._clock.now()) if self._emulation else [])

    def _quiet_for(self) -> float:
        if not self._emulation:
            return math.inf
        return max(0.0, self._emulation.next_at() - self._clock.now())

    async def _pause(self, seconds: float) -> None:
        """Sleep on the engine's clock, or until a command comes."""
        self._kick.clear()
        waits = {
            asyncio.ensure_future(self._clock.sleep(seconds)),
            asyncio.ensure_future(self._kick.wait()),
        }
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
            await asyncio.gather(*waits, return_exceptions=True)


def _vocabulary(folder: Path, otherwise: int) -> int:
    """Tokens that the publication's model knows: the learner will look them up."""
    try:
        config = json.loads((folder / "config.json").read_bytes())
    except FileNotFoundError:
        return otherwise
    return int(config.get("text_config", config)["vocab_size"])
