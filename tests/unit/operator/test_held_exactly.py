"""Held time is exact whatever dies: every pod once, from its start to its end, no gap, no overlap."""

from __future__ import annotations

from contextlib import suppress
from itertools import zip_longest

from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide import usage
from ebbtide.errors import NotFound
from ebbtide.testing.jobs import a_job
from tests.unit.operator.stage import JOB, Platform, play
from tests.unit.operator.test_controller import ALL

Death = tuple[int, bool]
"""The number of the write at which an operator dies, and whether after it."""
Kill = tuple[str, float]
DEATHS = st.lists(st.tuples(st.integers(1, 12), st.booleans()), max_size=4)
ALIVE = (-1, False)
KILLS = st.lists(st.tuples(st.sampled_from(ALL), st.floats(0.1, 40.0)), max_size=4)


async def live(platform: Platform, deaths: list[Death], kills: list[Kill]) -> None:
    """Operators that die at these writes, pods that are killed meanwhile; the last one clears up."""
    await platform.kubelet.create(a_job(backoffLimit=1000))
    for death, kill in zip_longest([*deaths, ALIVE], kills, fillvalue=None):
        platform.cluster.writes = 0
        platform.cluster.dies_at, platform.cluster.late = death or ALIVE
        async with platform.operator():
            await platform.clock.sleep(20.0)
            if kill is not None:
                await platform.clock.sleep(kill[1])
                with suppress(NotFound, KeyError):
                    await platform.end(kill[0], signal=9)
            await platform.clock.sleep(20.0)


@settings(max_examples=25)
@given(DEATHS, KILLS)
def test_every_life_of_a_pod_is_held_once_and_whole(deaths: list[Death], kills: list[Kill]) -> None:
    async def scene(platform: Platform) -> None:
        await live(platform, deaths, kills)
        platform.cluster.dies_at = -1
        async with platform.operator():
            with suppress(NotFound):
                await platform.kubelet.delete(*JOB)
            await platform.until(lambda: not platform.pods())
            await platform.clock.sleep(5.0)
        stored = platform.blobs.objects
        found = [usage.decode(data) for path, data in stored.items() if "/usage/" in path]
        assert {held.uid: [held.started_at, held.ended_at] for held in found} == platform.lives
        assert len(found) == len(platform.lives)

    play(scene)
