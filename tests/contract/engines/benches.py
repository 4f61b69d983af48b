"""Engines under test, small enough that queues and cuts happen."""

from __future__ import annotations

from dataclasses import dataclass

from ebbtide.adapters.clock import SystemClock
from ebbtide.engines.emulated import EmulatedEngine
from ebbtide.engines.emulation import Emulated
from ebbtide.engines.torch.decoder import Limits
from ebbtide.engines.torch.engine import TorchEngine
from ebbtide.ports import Engine
from ebbtide.testing.tiny_models import Tiny
from ebbtide.wire import PolicyRef

WIDTH = 96
KINDS = ("torch", "reference", "emulated")


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
