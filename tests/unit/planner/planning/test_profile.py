from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.errors import Refused
from services.planner.core.planning.profile import (
    LARGEST_CORRECTION,
    Observation,
    read_profile,
)
from tests.unit.planner.planning.samples import BATCHES, CONTEXTS, profile, profile_file


def test_a_profile_survives_its_file() -> None:
    read = read_profile(msgspec.json.encode(profile_file()))
    assert read.file == profile_file()
    assert read.startup_seconds == 10.0


def test_measured_points_come_back_as_measured() -> None:
    at = profile().tpot(np.asarray(BATCHES)[:, None], np.asarray(CONTEXTS)[None])
    np.testing.assert_allclose(at, profile_file().seconds)


def test_between_and_beyond_measured_points_the_line_goes_on() -> None:
    assert profile().tpot(192, 0) == pytest.approx(8e-5 * 192)
    assert profile().tpot(1024, 0) == pytest.approx(8e-5 * 1024)
    assert profile().tpot(1, 524_288) == pytest.approx(8e-3 + 3e-8 * 524_288)


@given(st.floats(1, 4096), st.floats(0, 1e6), st.floats(0, 4096), st.floats(0, 1e6))
def test_more_load_never_takes_less_time(b: float, c: float, more: float, longer: float) -> None:
    one = profile()
    assert one.tpot(b + more, c + longer) >= one.tpot(b, c) - 1e-12


def test_a_noisy_fall_is_lifted_to_the_running_maximum() -> None:
    one = profile(batches=(1, 96, 128), contexts=(0,), seconds=((0.01,), (0.02,), (0.019,)))
    assert one.tpot(128, 0) == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"batches": (8, 1), "seconds": ((1.0,), (1.0,)), "contexts": (0,)}, "/batches"),
        ({"batches": ()}, "/batches"),
        ({"contexts": (5, 5)}, "/contexts"),
        ({"seconds": ((0.1, 0.1, 0.1),)}, "/seconds"),
        ({"batches": (1,), "contexts": (0,), "seconds": ((float("nan"),),)}, "/seconds/0/0"),
        ({"batches": (1, 2), "contexts": (0,), "seconds": ((0.1,), (0.04,))}, "/seconds/1/0"),
        ({"kv_tokens": 0}, "/kv_tokens"),
        ({"catch_up_seconds": -1.0}, "/catch_up_seconds"),
        ({"startup": {"weights": float("inf")}}, "/startup"),
    ],
)
def test_a_profile_that_cannot_be_meant_is_refused(changes: dict[str, object], field: str) -> None:
    with pytest.raises(Refused) as refused:
        profile(**changes)
    assert refused.value.field == field


def test_another_version_is_refused() -> None:
    data = msgspec.json.encode(profile_file()).replace(b'"version":1', b'"version":2')
    with pytest.raises(Refused, match="version"):
        read_profile(data)


def test_reports_correct_the_curve_where_they_were_made() -> None:
    seen = profile().refine([Observation(64, 0, 2 * 8e-3)] * 50)
    assert seen.tpot(64, 0) == pytest.approx(2 * 8e-3, rel=0.02)


def test_a_slow_machine_is_slow_at_batches_that_nobody_reported() -> None:
    seen = profile().refine([Observation(64, 0, 2 * 8e-3)] * 50)
    assert seen.tpot(1, 0) == pytest.approx(2 * 8e-3, rel=0.02)


def test_an_absurd_report_moves_the_curve_only_so_far() -> None:
    seen = profile().refine([Observation(64, 0, 1e6)] * 100)
    assert seen.factors.max() == LARGEST_CORRECTION


def test_reports_that_say_nothing_change_nothing() -> None:
    nothing = [Observation(0, 0, 0.1), Observation(8, 0, 0.0), Observation(8, 0, float("nan"))]
    assert profile().refine(nothing).tpot(8, 100) == profile().tpot(8, 100)


def test_a_move_takes_the_faster_way() -> None:
    assert profile().move_seconds(1000) == pytest.approx(1000 * 36_864 / 3e9)
    no_path = profile(handover_bytes_per_second=0.0)
    assert no_path.move_seconds(1000) == pytest.approx(1000 * 34e-6)
