"""Nodes with fake GPUs by kwok: what `make bench NAME=operator_scale` plays, in small."""

from __future__ import annotations

import pytest

from benchmarks.operator_scale import Size, at_work
from tests.worlds.kube import ControlPlane

pytestmark = pytest.mark.kube
SMALL = Size(jobs=4, actors=3, rate=8.0)


async def test_a_storm_of_scale_downs_takes_exactly_those_that_are_named(
    kubernetes: ControlPlane,
) -> None:
    async with at_work(kubernetes, SMALL) as (load, _):
        await load.build(120.0)
        await load.change(2 * SMALL.jobs, SMALL.rate)
        assert len(load.delays.written) == 2 * SMALL.jobs
        assert len(load.delays.reported) == SMALL.jobs
        named, others, _ = await load.storm(SMALL.jobs)
        assert (named, others) == (SMALL.jobs, 0)
        assert len(load.eyes.living()) == SMALL.jobs * (SMALL.actors - 1)
