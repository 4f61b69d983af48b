"""Few writes for a change of a pool, and none that is lost for it; on virtual time."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from ebbtide.ports import Resource
from ebbtide.testing.jobs import a_job
from ebbtide_operator.core import fleets
from ebbtide_operator.core.reconcile import parse
from tests.unit.operator import stage
from tests.unit.operator.stage import JOB, MortalCluster, Platform, Scene

POOL = ("DecodePool", *JOB[1:])


class Counting(MortalCluster):
    """Notes the kind of each status that is written. `stale`: told instead of a pool's version."""

    def __init__(self, **given: Any) -> None:
        super().__init__(**given)
        self.told: list[str] = []
        self.stale = ""

    async def patch_status(self, *given: Any, **named: Any) -> Resource:
        self.told.append(given[0])
        return await super().patch_status(*given, **named)

    async def get(self, kind: str, namespace: str, name: str) -> Resource:
        found = await super().get(kind, namespace, name)
        if kind != "DecodePool" or not self.stale:
            return found
        meta = msgspec.structs.replace(found.metadata, resource_version=self.stale)
        return msgspec.structs.replace(found, metadata=meta)


def play(scene: Scene) -> None:
    """Run a scene with a job that runs, and a pool that has come to rest."""

    async def at_rest(platform: Platform) -> None:
        seen = Counting(wall=platform.clock.wall)
        seen.table, seen._moved = platform.cluster.table, platform.cluster._moved
        platform.cluster = seen
        async with platform.operator():
            await platform.kubelet.create(a_job())
            await platform.until(lambda: platform.holds("Running"))
            await platform.clock.sleep(3.0)
            seen.told.clear()
            await scene(platform)

    stage.play(at_rest)


async def scale(platform: Platform, replicas: int, *release: str) -> None:
    spec = {"replicas": replicas, "release": list(release)}
    await platform.kubelet.patch(*POOL, {"spec": spec})


async def status(platform: Platform) -> Mapping[str, Any]:
    return (await platform.kubelet.get(*POOL)).status


def told(platform: Platform) -> list[str]:
    assert isinstance(platform.cluster, Counting)
    return platform.cluster.told


def actors(platform: Platform) -> list[str]:
    return [name for name in platform.pods() if "decode" in name]


def test_an_actor_more_is_one_write_of_the_pools_status() -> None:
    async def scene(platform: Platform) -> None:
        await scale(platform, 3)
        await platform.clock.sleep(10.0)
        assert told(platform).count("DecodePool") == 1
        seen = await status(platform)
        assert (seen["readyReplicas"], seen["nextIndex"], seen["desiredReplicas"]) == (3, 3, 3)

    play(scene)


def test_an_actor_less_is_one_write_of_each_status() -> None:
    async def scene(platform: Platform) -> None:
        await scale(platform, 1, "job-decode-0")
        await platform.clock.sleep(10.0)
        assert sorted(told(platform)) == ["DecodePool", "RLHFJob"]
        assert actors(platform) == ["job-decode-1"]
        assert (await status(platform))["readyReplicas"] == 1

    play(scene)


def test_the_last_of_many_changes_is_told_within_two_seconds() -> None:
    async def scene(platform: Platform) -> None:
        for replicas in (3, 4, 5, 4, 3, 4):
            await scale(platform, replicas)
            await platform.clock.sleep(0.7)
        await platform.clock.sleep(2.0)
        seen = await status(platform)
        assert (seen["replicas"], seen["readyReplicas"], seen["desiredReplicas"]) == (4, 4, 4)

    play(scene)


@pytest.mark.parametrize("seconds", [0.05, 0.3, 0.9])
def test_no_actor_has_the_number_of_one_that_went_before_it_was_noted(seconds: float) -> None:
    async def scene(platform: Platform) -> None:
        await scale(platform, 3)
        await platform.clock.sleep(seconds)
        assert actors(platform)[-1] == "job-decode-2"
        await platform.kubelet.delete("Pod", "default", "job-decode-2")
        await platform.clock.sleep(10.0)
        assert actors(platform) == ["job-decode-0", "job-decode-1", "job-decode-3"]

    play(scene)


def test_numbers_are_noted_of_a_job_that_is_suspended_at_once() -> None:
    async def scene(platform: Platform) -> None:
        await scale(platform, 3)
        await platform.clock.sleep(0.05)
        await platform.kubelet.patch(*JOB, {"spec": {"suspend": True}})
        await platform.clock.sleep(30.0)
        assert actors(platform) == []
        assert (await status(platform))["nextIndex"] == 3

    play(scene)


def test_numbers_are_noted_of_a_job_whose_specification_has_become_wrong() -> None:
    async def scene(platform: Platform) -> None:
        await scale(platform, 3)
        await platform.clock.sleep(0.05)
        await platform.kubelet.patch(*JOB, {"spec": {"seed": "none"}})
        await platform.kubelet.delete("Pod", "default", "job-decode-2")
        await platform.clock.sleep(10.0)
        assert (await status(platform))["nextIndex"] == 3

    play(scene)


def test_no_actor_is_made_or_ended_for_a_pool_that_is_another_by_now() -> None:
    async def scene(platform: Platform) -> None:
        assert isinstance(platform.cluster, Counting)
        platform.cluster.stale = "1"
        await scale(platform, 3, "job-decode-0")
        await platform.clock.sleep(0.9)
        assert actors(platform) == ["job-decode-0", "job-decode-1"]
        platform.cluster.stale = ""
        await platform.clock.sleep(10.0)
        assert actors(platform) == ["job-decode-1", "job-decode-2", "job-decode-3"]

    play(scene)


def test_a_specification_is_parsed_once() -> None:
    assert parse(a_job()) is parse(a_job())


def test_a_pool_that_is_gone_has_no_numbers_to_note() -> None:
    assert fleets.numbers(None, ()) is None
