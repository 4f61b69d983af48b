"""The verdict of a benchmark follows its figure, and nothing else."""

import json
import math
import time

import pytest

from benchmarks.harness import Measured, Target, load_targets, table, verdict

FAST = Target(sense="at_most", limit=2.0, unit="x", about="ratio of two loops")


def ratio(extra: float) -> Measured:
    """A measured ratio of one loop to itself, with `extra` of its own time planted on top."""
    began = time.perf_counter()
    sum(range(20_000))
    base = time.perf_counter() - began
    return Measured(value=(base + extra * base) / base, columns=["loop"], rows=[[base]])


def test_a_run_within_its_target_holds() -> None:
    line, holds = verdict("loop", FAST, ratio(extra=0.0))
    assert holds
    assert json.loads(line)["holds"] is True


def test_a_planted_slowdown_flips_the_verdict() -> None:
    line, holds = verdict("loop", FAST, ratio(extra=3.0))
    assert not holds
    assert json.loads(line)["holds"] is False


def test_a_figure_that_is_not_a_number_never_holds() -> None:
    assert not FAST.holds(math.nan)


def test_at_least_and_at_most_look_in_opposite_directions() -> None:
    floor = Target(sense="at_least", limit=2.0, unit="x", about="")
    assert (floor.holds(3.0), FAST.holds(3.0)) == (True, False)


def test_the_last_line_names_value_unit_and_target() -> None:
    line, _ = verdict("loop", FAST, Measured(1.5, ["a"], [[1]]))
    assert json.loads(line) == {
        "name": "loop",
        "value": 1.5,
        "unit": "x",
        "target": "at most 2",
        "holds": True,
    }


def test_a_table_aligns_its_columns() -> None:
    assert table(Measured(1.0, ["who", "s"], [["ours", 1.25]])) == "who   s   \nours  1.25"


@pytest.mark.parametrize("name", load_targets())
def test_every_target_says_what_it_is_about(name: str) -> None:
    assert load_targets()[name].about
