"""What the operator knows of the cluster, whatever the watch tells."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from ebbtide import labels
from ebbtide.errors import Conflict, Temporary
from ebbtide.ports import Change, Meta, Resource
from ebbtide.testing.cluster import FakeCluster
from ebbtide.testing.jobs import a_job
from ebbtide_operator.cache import Cache
from ebbtide_operator.lease import Lost
from tests.unit.operator.stage import JOB, QUIET


def a_cache(cluster: FakeCluster, told: list[tuple[str, str]]) -> Cache:
    return Cache(cluster=cluster, namespace=None, log=QUIET, changed=told.append)


def a_node(*taints: str) -> Resource:
    return Resource("v1", "Node", Meta(name="n"), spec={"taints": list(taints)})


async def test_a_tainted_node_is_told_to_the_jobs_that_have_pods_there() -> None:
    cluster, told = FakeCluster(), list[tuple[str, str]]()
    cache = Cache(
        cluster=cluster, namespace=None, log=QUIET, changed=told.append, taints=("spot", "other")
    )
    meta = Meta(name="pod", labels={labels.JOB: "job"})
    await cluster.create(Resource("v1", "Pod", meta, spec={"nodeName": "n", "command": ["x"]}))
    await cluster.create(a_node("elsewhere"))
    follow = asyncio.create_task(cache.follow())
    await asyncio.sleep(0.01)
    told.clear()
    place = ("Node", "default", "n")
    for taints, seen in ((["spot"], {"n": "spot"}), ([], {})):
        await cluster.patch(*place, {"spec": {"taints": taints}})
        await asyncio.sleep(0.01)
        assert cache.observe(("default", "job")).interrupted == seen
    assert told == [("default", "job")] * 2
    follow.cancel()


@pytest.mark.parametrize("seen", [True, False])
async def test_news_older_than_a_deletion_does_not_raise_the_dead(seen: bool) -> None:
    cluster = FakeCluster()
    cache = a_cache(cluster, [])
    follow = asyncio.create_task(cache.follow())
    if seen:
        await asyncio.sleep(0.01)
    made = await cluster.create(a_job())
    await cluster.delete(*JOB)
    await asyncio.sleep(0.01)
    cache.learn(made)
    assert cache.jobs() == []
    follow.cancel()


async def test_the_write_that_removes_the_last_finalizer_removes_the_object() -> None:
    cluster = FakeCluster()
    cache = a_cache(cluster, [])
    await cluster.create(a_job())
    cache.learn(await cluster.patch(*JOB, {"metadata": {"finalizers": ["x/y"]}}))
    await cluster.delete(*JOB)
    cache.learn(await cluster.patch(*JOB, {"metadata": {"finalizers": []}}))
    assert cache.jobs() == []


class Forgetful(FakeCluster):
    """A watch that has expired at the first change it would tell."""

    def __init__(self) -> None:
        super().__init__()
        self.lists = 0

    async def list(self, *given: Any, **named: Any) -> tuple[list[Resource], str]:
        self.lists += 1
        return await super().list(*given, **named)

    async def watch(
        self, kinds: Sequence[str], namespace: str | None, since: str
    ) -> AsyncIterator[Change]:
        async for change in super().watch(kinds, namespace, since):
            if self.lists <= 3:
                raise Conflict("expired")
            yield change


async def test_an_expired_watch_is_followed_by_a_new_list() -> None:
    cluster = Forgetful()
    told: list[tuple[str, str]] = []
    cache = a_cache(cluster, told)
    follow = asyncio.create_task(cache.follow())
    await asyncio.sleep(0.01)
    await cluster.create(a_job())
    async with asyncio.timeout(5):
        while not told:
            await asyncio.sleep(0.01)
    assert told == [("default", "job")]
    follow.cancel()
    assert isinstance(Lost("x"), Temporary)


class Silent(FakeCluster):
    """Its first lists are not answered."""

    silence = 2

    async def list(self, *given: Any, **named: Any) -> tuple[list[Resource], str]:
        self.silence -= 1
        if self.silence >= 0:
            raise Temporary("no answer", delay=0.01)
        return await super().list(*given, **named)


async def test_a_silent_object_store_is_listed_until_it_answers() -> None:
    cluster = Silent()
    cache = a_cache(cluster, [])
    await cluster.create(a_job())
    follow = asyncio.create_task(cache.follow())
    await asyncio.sleep(0)
    assert (cache.heard, cache.trouble) == (False, "no answer")
    async with asyncio.timeout(5):
        while not cache.heard:
            await asyncio.sleep(0.01)
    assert cache.trouble == ""
    assert cache.jobs() == [("default", "job")]
    follow.cancel()
