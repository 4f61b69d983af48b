"""What is measured of an engine is what it does: exact for the emulated one on a virtual clock."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.adapters.clock import SystemClock
from ebbtide.engines.emulated import EmulatedEngine
from ebbtide.engines.emulation import Emulated
from ebbtide.engines.policies import INDEX_NAME
from ebbtide.ports import Engine, EngineEvent, EngineFinished
from ebbtide.profiles import ProfileFile, check_profile
from ebbtide.spec import RLHFJobSpec
from ebbtide.testing.clock import VirtualClock, run_virtual
from ebbtide.transfer.shm import ShmTransfer
from services.decode.app.profiling import Subject, Wires, measure
from services.decode.app.rehearsal import publish
from services.decode.core.measuring import (
    Load,
    Point,
    contexts,
    default_batches,
    grid,
    loads,
    row,
    suspects,
)


class Disturbed:
    """An engine whose first `samples` seem to have taken a second more per token."""

    def __init__(self, engine: Engine, *, samples: int) -> None:
        self._engine, self._left = engine, samples

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    async def events(self, *, timeout: float) -> Sequence[EngineEvent]:
        return [self._seen(event) for event in await self._engine.events(timeout=timeout)]

    def _seen(self, event: EngineEvent) -> EngineEvent:
        if not isinstance(event, EngineFinished) or self._left == 0:
            return event
        self._left -= 1
        return msgspec.structs.replace(event, decode=event.decode + 8.0)


NAMES = {"engine": "e", "model": "m", "gpu": ""}


def _spec(**decode: Any) -> RLHFJobSpec:
    return RLHFJobSpec.model_validate(
        {
            "model": {"uri": "nowhere"},
            "dataset": {"train": {"type": "jsonl", "uri": "x"}, "maxPromptTokens": 32},
            "algorithm": {"type": "grpo"},
            "training": {"totalSteps": 1, "promptsPerStep": 4, "maxResponseTokens": 32},
            "reward": {"components": [{"type": "exact", "name": "a"}]},
            "decode": decode,
        },
        strict=False,
    )


async def _measured(engine: Engine, subject: Subject, wires: Wires | None = None) -> ProfileFile:
    await engine.load(subject.policy, subject.index)
    return await measure(
        subject,
        batches=[1, 2, 4],
        tokens=8,
        wires=wires,
        said=lambda *_: None,
        names=NAMES,
        startup={"engine": 1.0, "weights": 2.0},
    )


def test_the_emulated_engine_is_measured_as_it_was_made(tmp_path: Path) -> None:
    policy = publish(_spec(engine="emulated"), tmp_path)

    async def scenario() -> ProfileFile:
        params = Emulated(slots=4, width=64, tpot=0.010, tpot_per_row=0.002, prefill=0.004)
        engine = EmulatedEngine(params, clock=VirtualClock())
        return await _measured(engine, Subject(engine, policy, tmp_path / INDEX_NAME, 64, 256))

    found = run_virtual(scenario())
    for seconds, expected in zip(found.seconds, (0.010, 0.012, 0.016), strict=True):
        assert seconds == pytest.approx([expected] * len(found.contexts), rel=1e-6)
    assert (found.wake_seconds, found.kv_tokens) == (3.0, 256)
    assert found.prefill_seconds_per_token == pytest.approx(0.004)
    assert found.handover_bytes_per_second == 0
    check_profile(found)


def test_a_tiny_torch_model_gives_a_profile_that_a_planner_takes(tmp_path: Path) -> None:
    from ebbtide.engines.torch.decoder import Limits  # noqa: PLC0415 - dear
    from ebbtide.engines.torch.engine import TorchEngine  # noqa: PLC0415
    from ebbtide.testing.tiny_models import VOCAB, publish_tiny  # noqa: PLC0415

    tiny = publish_tiny(tmp_path / "policy")

    async def scenario() -> ProfileFile:
        engine = TorchEngine(Limits(slots=4, width=64))
        ends = [
            ShmTransfer(name=n, epoch=1, clock=SystemClock(), root=tmp_path / "kv")
            for n in ("profile-writer", "profile-reader")
        ]
        subject = Subject(engine, tiny.policy, tiny.path, 64, VOCAB)
        try:
            return await _measured(engine, subject, Wires(*ends))
        finally:
            await engine.close()
            for end in ends:
                await end.close()

    found = asyncio.run(scenario())
    # 2 layers of keys and values, 2 heads of 8 float32 numbers each.
    assert found.kv_bytes_per_token == 2 * 2 * 2 * 8 * 4
    assert found.handover_bytes_per_second > 0
    assert found.prefill_seconds_per_token < 1
    # Not check_profile: a machine that stalls at the wrong moment is no fault of what is tested.
    assert len(found.seconds) == 3
    assert min(map(min, found.seconds)) > 0


def test_a_point_far_slower_than_a_larger_load_is_suspect() -> None:
    points = {1: [Point(10, 0.01), Point(50, 0.05)], 2: [Point(20, 0.011), Point(100, 0.024)]}
    assert suspects(points) == [(1, 1)]
    points[1][1] = Point(50, 0.04)
    assert suspects(points) == []


def test_a_disturbed_point_is_measured_again(tmp_path: Path) -> None:
    policy = publish(_spec(engine="emulated"), tmp_path)

    async def scenario() -> ProfileFile:
        params = Emulated(slots=4, width=64, tpot=0.010, tpot_per_row=0.002, prefill=0.004)
        engine: Any = Disturbed(EmulatedEngine(params, clock=VirtualClock()), samples=2)
        return await _measured(engine, Subject(engine, policy, tmp_path / INDEX_NAME, 64, 256))

    found = run_virtual(scenario())
    assert found.seconds[0] == pytest.approx([0.010] * len(found.contexts), rel=1e-6)


def test_a_row_beyond_its_reach_is_not_above_the_next() -> None:
    points = {1: [Point(10, 0.01), Point(20, 0.05)], 4: [Point(40, 0.06), Point(80, 0.07)]}
    small, large = grid(points, [10, 20, 40, 80])
    assert small == pytest.approx((0.01, 0.05, 0.06, 0.07))
    assert large == pytest.approx((0.06, 0.06, 0.06, 0.07))


def test_a_job_without_its_model_is_refused(tmp_path: Path) -> None:
    from ebbtide.errors import Refused  # noqa: PLC0415

    with pytest.raises(Refused, match="no model can be loaded") as caught:
        publish(_spec(engine="torch"), tmp_path / "policy")
    assert caught.value.field == "/spec/model/uri"


def test_batches_double_up_to_all_slots() -> None:
    assert default_batches(48) == [1, 2, 4, 8, 16, 32, 48]
    assert default_batches(1) == [1]


def test_prompts_leave_room_for_what_is_written() -> None:
    assert loads([2], width=64, tokens=16) == [Load(2, 2), Load(2, 24), Load(2, 48)]
    assert loads([1], width=3, tokens=2) == [Load(1, 1)]


def test_a_row_is_drawn_straight_and_goes_on_with_its_slope() -> None:
    points = [Point(100, 0.010), Point(300, 0.014)]
    assert row(points, [50, 100, 200, 400]) == pytest.approx((0.010, 0.010, 0.012, 0.016))


@given(
    st.dictionaries(
        st.integers(1, 64),
        st.lists(st.builds(Point, st.floats(1, 1e6), st.floats(1e-6, 10)), min_size=1, max_size=4),
        min_size=1,
        max_size=4,
    )
)
def test_no_row_falls_and_all_rows_have_the_axis(points: dict[int, list[Point]]) -> None:
    axis = contexts(points)
    assert axis == sorted(set(axis))
    for those in points.values():
        found = row(those, axis)
        assert len(found) == len(axis)
        assert all(0 < a <= b for a, b in pairwise(found))
