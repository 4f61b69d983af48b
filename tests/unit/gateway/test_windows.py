"""The cost of a part of a job: whole steps, with the time from commit to commit."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide import paths, usage
from ebbtide.usage import Usage
from ebbtide.wire import Record, Spent
from services.gateway.core.tally import StepMark
from services.gateway.core.windows import Asked, chosen
from tests.unit.gateway.test_figures import UID, a_report, put
from tests.worlds.gateway import World

MARKS = {n: StepMark(10.0 * n, 10.0 * n + 10, 4, None, None) for n in range(4)}
BOUND = st.none() | st.integers(-1, 5)


async def a_job() -> World:
    """Three steps from 1000 s on; one actor all the time, priced a cent a second."""
    world = World()
    await world.put_job()
    price = {"spec": {"prices": [{"pool": "p", "perHour": 36.0}]}}
    await world.cluster.patch("RLHFJob", "default", "demo", price)
    await put(world, *map(a_report, range(3)))
    held = Usage(UID, "decode", "d-0", "u", "p", 1, 990.0, 1040.0, 1040.0)
    await world.blobs.put(paths.usage(UID, "d-0", "u"), usage.encode(held))
    busy: list[list[Record]] = [[Spent(n, "decode", "d-0", "busy", 5.0 + n)] for n in range(3)]
    await world.put_ledger(UID, *busy)
    return world


async def cost(world: World, **query: Any) -> Any:
    async with world.client() as api:
        answer = await api.get("/v1/jobs/demo/cost", params=query)
    return answer.json() | {"http": answer.status_code}


async def test_a_window_of_steps_has_the_time_between_their_commits() -> None:
    found = await cost(await a_job(), firstStep=1, lastStep=1)
    parts = {part["cause"]: part["seconds"] for part in found["parts"]}
    assert parts == {"busy": 6.0, "unattributed": 4.0}
    assert found["window"] == {"firstStep": 1, "lastStep": 1, "start": 1010.0, "end": 1020.0}
    assert found["total"] == found["perStep"] == pytest.approx(0.1)


async def test_windows_of_single_steps_and_the_rest_add_up_to_the_whole() -> None:
    world = await a_job()
    whole = await cost(world)
    parts = [await cost(world, firstStep=n, lastStep=n) for n in range(3)]
    assert sum(part["heldSeconds"] for part in parts) == 40.0  # up to the last commit
    assert whole["heldSeconds"] == 50.0
    assert whole["steps"] == 3


async def test_times_are_widened_to_whole_steps() -> None:
    found = await cost(await a_job(), since=1012.0, until=1013.0)
    assert (found["window"]["firstStep"], found["window"]["lastStep"]) == (1, 1)


async def test_parts_are_grouped_as_asked() -> None:
    found = await cost(await a_job(), by=["pool", "actor"])
    (part,) = found["parts"]
    assert (part["pool"], part["actor"], part["seconds"]) == ("p", "d-0", 50.0)
    assert found["perThousandTokens"] == pytest.approx(0.5 / 0.12)


async def test_a_window_without_a_step_is_not_found() -> None:
    assert (await cost(await a_job(), firstStep=7))["http"] == 404


@given(first=BOUND, last=BOUND, since=BOUND, until=BOUND)
def test_a_window_is_a_run_of_committed_steps_within_its_bounds(
    first: int | None, last: int | None, since: int | None, until: int | None
) -> None:
    scaled = [None if bound is None else bound * 10.0 for bound in (since, until)]
    found = chosen(Asked(first, last, *scaled), MARKS)
    if found is not None and found.steps:
        assert set(found.steps) <= set(MARKS)
        assert found.steps[0] >= (first or 0)
        assert last is None or found.steps[-1] <= last
        assert found.time.end == MARKS[found.steps[-1]].end
