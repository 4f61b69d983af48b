"""Engines under test, small enough that queues and cuts happen."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from ebbtide.adapters.clock import SystemClock
from ebbtide.engines.emulated import EmulatedEngine
from ebbtide.engines.emulation import Emulated
from ebbtide.engines.mailbox import Seen
from ebbtide.engines.torch.decoder import Limits
from ebbtide.engines.torch.engine import TorchEngine
from ebbtide.ports import Engine
from ebbtide.testing.tiny_models import Tiny
from ebbtide.wire import PolicyRef

WIDTH = 96
BATCHED = 100
"""Tokens of one forward of vLLM's: two prompts may be too many."""
HAS_VLLM = find_spec("vllm") is not None
"""Only in the environment that `make setup-vllm` makes."""
KINDS = ("torch", "reference", "emulated", *(("vllm",) if HAS_VLLM else ()))


@dataclass
class Bench:
    """An engine with a loaded policy, and another policy to load."""

    engine: Engine
    tiny: Tiny
    other: Tiny

    @property
    def policy(self) -> PolicyRef:
        return self.tiny.policy


def make(kind: str) -> Engine:
    if kind == "emulated":
        params = Emulated(
            slots=4, width=WIDTH, mean_tokens=12, tpot=1e-3, tpot_per_row=1e-5, flush_seconds=0.01
        )
        return EmulatedEngine(params, clock=SystemClock())
    limits = Limits(
        slots=4,
        width=WIDTH,
        prefill_chunk=16,
        prefix_rows=3,
        reference=kind == "reference",
        flush_tokens=3,
    )
    return TorchEngine(limits)


def start_vllm() -> Any:
    """Small as the others; it takes seconds, so a session has one and forgets between tests."""
    from ebbtide.engines.vllm.engine import VllmEngine  # noqa: PLC0415 - not everywhere installed
    from ebbtide.engines.vllm.limits import VllmLimits  # noqa: PLC0415

    limits = VllmLimits(
        slots=4,
        width=WIDTH,
        batched_tokens=BATCHED,
        kv_bytes=64 << 20,
        stream_tokens=1,
        flush_tokens=3,
    )
    return VllmEngine(limits)


async def settle(engine: Any) -> None:
    """What the last test left is over; dispatches may be named again."""
    for dispatch in list(engine._desk._live):
        engine.cut(dispatch)
    while engine._desk._live:
        await engine.events(timeout=1.0)
    await engine.events(timeout=0.0)
    engine._desk._seen = Seen()
