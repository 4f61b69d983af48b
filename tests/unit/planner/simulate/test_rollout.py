from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from services.planner.core.planning.migration import Move, Working
from services.planner.simulate.answers import Batch
from services.planner.simulate.calibration import computed_profile
from services.planner.simulate.machine import Table
from services.planner.simulate.rollout import Layout, Lost, Rollout, Running, Seat, World

TABLE = Table(computed_profile("qwen2.5-3b", "l40s"), 8)
N = 24


def batch(seed: int) -> Batch:
    numbers = np.arange(N)
    lengths = np.random.default_rng(seed).integers(1, 1500, N)
    return Batch(
        0, numbers, numbers // 3, lengths, np.zeros(N, bool), np.full(N, 80), np.zeros(N, int)
    )


def world(seed: int, heard: list[int], actors: int = 4) -> World:
    layout = Layout(np.arange(N) % actors, [Seat(0)] * actors, np.arange(N))
    return World(batch(seed), layout, [TABLE], cache="engine", pause=0.05, hear=heard.extend)


class Anywhere:
    """Moves what it likes to whoever is there."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)

    def __call__(self, _now: float, actors: Sequence[Working], _running: Running) -> list[Move]:
        found = []
        for source in actors:
            others = [a.name for a in actors if a.name != source.name]
            for sample in source.samples:
                if others and self._random.random() < 0.2:
                    how = "kv" if self._random.random() < 0.5 else "recompute"
                    found.append(Move(sample, source.name, self._random.choice(others), how, 0.1))  # type: ignore[arg-type]
        return found


def ended_once(found: Rollout, heard: list[int]) -> bool:
    return sorted(heard) == list(range(N)) and not np.isnan(found.ends).any()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 99), st.booleans())
def test_no_sample_is_lost_however_often_it_moves(seed: int, leaves: bool) -> None:
    heard: list[int] = []
    found = world(seed, heard).run(mover=Anywhere(seed), leaves=leaves)
    assert ended_once(found, heard)


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 99),
    st.lists(
        st.tuples(st.integers(0, 3), st.floats(0, 15), st.sampled_from([0.0, 30.0])), max_size=4
    ),
)
def test_no_sample_is_lost_whoever_is_taken_away(
    seed: int, losses: list[tuple[int, float, float]]
) -> None:
    heard: list[int] = []
    found = world(seed, heard).run(mover=Anywhere(seed), losses=[Lost(*one) for one in losses])
    assert ended_once(found, heard)


def test_a_loss_without_notice_costs_more_than_one_with() -> None:
    told, untold = (
        world(1, []).run(losses=[Lost(0, 4.0, notice), Lost(1, 4.0, notice)])
        for notice in (60.0, 0.0)
    )
    assert untold.recomputed > told.recomputed == 0
    assert untold.seconds > told.seconds


def test_a_step_that_is_stopped_says_what_is_left() -> None:
    heard: list[int] = []
    found = world(2, heard).run(until=5.0)
    going = np.isnan(found.ends)
    assert going.any()
    assert (found.rest[going] > 0).all()
    assert found.rest[~going].sum() == 0


def test_an_actor_that_starts_late_ends_late() -> None:
    layout = Layout(np.zeros(N, int), [Seat(0, 7.0)], np.arange(N))
    late = World(batch(0), layout, [TABLE], cache="engine", pause=0.0, hear=lambda _: None).run()
    assert late.seconds == pytest.approx(world(0, [], actors=1).run().seconds + 7.0)
