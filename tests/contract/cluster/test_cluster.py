"""What every cluster keeps to: the fake, the local object store, and the Kubernetes API."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.cluster_sqlite import open_cluster
from ebbtide.errors import Conflict, NotFound, Refused
from ebbtide.ports import Change, Cluster, Meta, Owner, Resource
from ebbtide.testing.cluster import FakeCluster

KEY = ("Thing", "default", "a")
STORES = ["fake", "sqlite"]
ALL = [*STORES, pytest.param("kubernetes", marks=pytest.mark.kube)]
local_only = pytest.mark.parametrize("cluster", STORES, indirect=True)


@pytest.fixture(params=ALL)
async def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Cluster]:
    if request.param == "fake":
        yield FakeCluster(history=100)
    elif request.param == "sqlite":
        async with open_cluster(tmp_path / "o.sqlite", clock=SystemClock(), history=100) as opened:
            yield opened
    else:
        async with request.getfixturevalue("kubernetes").cluster() as opened:
            yield opened
            await clear(opened)


async def clear(cluster: Cluster) -> None:
    """Leave nothing to the next test of the same API server."""
    for kind in ("Thing", "Other"):
        for left in (await cluster.list(kind))[0]:
            key = (kind, left.metadata.namespace, left.metadata.name)
            with suppress(NotFound):
                if left.metadata.finalizers:
                    await cluster.patch(*key, {"metadata": {"finalizers": []}})
                await cluster.delete(*key)


async def gone(cluster: Cluster, name: str) -> bool:
    """Whether the object is not there, or soon will not be: owners are followed in time."""
    async with asyncio.timeout(60):
        while True:
            try:
                await cluster.get("Thing", "default", name)
            except NotFound:
                return True
            await asyncio.sleep(0.05)


def a_thing(name: str = "a", *, owners: tuple[Resource, ...] = (), **meta: Any) -> Resource:
    references = tuple(Owner(o.kind, o.metadata.name, o.metadata.uid) for o in owners)
    metadata = Meta(name=name, owner_references=references, **meta)
    return Resource(
        api_version="test.ebbtide.dev/v1", kind="Thing", metadata=metadata, spec={"n": 1}
    )


async def changes(cluster: Cluster, since: str, n: int) -> list[Change]:
    seen: list[Change] = []
    async with asyncio.timeout(5):
        async for change in cluster.watch(("Thing",), "default", since):
            seen.append(change)
            if len(seen) == n:
                break
    return seen


async def version(cluster: Cluster) -> str:
    return (await cluster.list("Thing"))[1]


async def test_a_new_object_is_stamped(cluster: Cluster) -> None:
    made = await cluster.create(a_thing())
    assert made.metadata.uid
    assert int(made.metadata.resource_version) <= int(await version(cluster))
    assert made.metadata.generation == 1
    assert made.metadata.creation_timestamp.endswith("Z")
    assert await cluster.get(*KEY) == made


async def test_a_name_is_taken_once(cluster: Cluster) -> None:
    await cluster.create(a_thing())
    with pytest.raises(Conflict, match="exists already"):
        await cluster.create(a_thing())


async def test_a_name_used_again_gets_another_uid(cluster: Cluster) -> None:
    first = await cluster.create(a_thing())
    await cluster.delete(*KEY)
    assert (await cluster.create(a_thing())).metadata.uid != first.metadata.uid


@pytest.mark.parametrize("name", ["", "A", "a/b", "../a", "-a", "a" * 254])
async def test_a_bad_name_is_refused(cluster: Cluster, name: str) -> None:
    with pytest.raises(Refused, match=r"metadata\.name"):
        await cluster.create(a_thing(name))


async def test_a_missing_object_is_not_found(cluster: Cluster) -> None:
    for call in (cluster.get(*KEY), cluster.patch(*KEY, {}), cluster.delete(*KEY)):
        with pytest.raises(NotFound):
            await call


async def test_a_merge_patch_merges_replaces_and_removes(cluster: Cluster) -> None:
    await cluster.create(a_thing(labels={"x": "1", "y": "2"}))
    change = {"metadata": {"labels": {"x": None}}, "spec": {"n": [2], "deep": {"a": 1}}}
    got = await cluster.patch(*KEY, change)
    assert got.metadata.labels == {"y": "2"}
    assert got.spec == {"n": [2], "deep": {"a": 1}}


async def test_only_a_change_of_spec_raises_the_generation(cluster: Cluster) -> None:
    await cluster.create(a_thing())
    assert (await cluster.patch_status(*KEY, {"phase": "x"})).metadata.generation == 1
    labelled = await cluster.patch(*KEY, {"metadata": {"labels": {"a": "b"}}})
    assert labelled.metadata.generation == 1
    assert (await cluster.patch(*KEY, {"spec": {"n": 2}})).metadata.generation == 2


async def test_a_write_that_changes_nothing_leaves_no_trace(cluster: Cluster) -> None:
    made = await cluster.create(a_thing())
    assert await cluster.patch(*KEY, {"spec": {"n": 1}}) == made
    assert await cluster.patch_status(*KEY, {}) == made
    assert await cluster.get(*KEY) == made


async def test_status_and_spec_are_written_apart(cluster: Cluster) -> None:
    await cluster.create(a_thing())
    with pytest.raises(Refused, match="patch_status"):
        await cluster.patch(*KEY, {"status": {"phase": "x"}})
    got = await cluster.patch_status(*KEY, {"a": 1, "b": {"c": 2}})
    assert (got.spec, got.status) == ({"n": 1}, {"a": 1, "b": {"c": 2}})
    assert (await cluster.patch_status(*KEY, {"b": None})).status == {"a": 1}


@pytest.mark.parametrize("field", ["uid", "resourceVersion", "generation", "name"])
async def test_identity_cannot_be_patched(cluster: Cluster, field: str) -> None:
    await cluster.create(a_thing())
    with pytest.raises(Refused, match=field):
        await cluster.patch(*KEY, {"metadata": {field: "1"}})


async def test_a_stale_version_is_a_conflict(cluster: Cluster) -> None:
    stale = (await cluster.create(a_thing())).metadata.resource_version
    fresh = await cluster.patch_status(*KEY, {"a": 1}, stale)
    with pytest.raises(Conflict, match="read it again"):
        await cluster.patch(*KEY, {"spec": {"n": 2}}, stale)
    with pytest.raises(Conflict):
        await cluster.patch_status(*KEY, {"a": 2}, stale)
    assert await cluster.get(*KEY) == fresh


async def test_lists_select_by_kind_namespace_and_labels(cluster: Cluster) -> None:
    await cluster.create(a_thing("b", labels={"x": "1"}))
    await cluster.create(a_thing("a", labels={"x": "1", "y": "1"}))
    await cluster.create(a_thing("c", namespace="other", labels={"x": "1"}))
    named = [p.metadata.name for p in (await cluster.list("Thing", "default", {"x": "1"}))[0]]
    assert named == ["a", "b"]
    assert [p.metadata.name for p in (await cluster.list("Thing", None, {"y": "1"}))[0]] == ["a"]
    assert len((await cluster.list("Thing"))[0]) == 3
    assert (await cluster.list("Other"))[0] == []


async def test_a_finalizer_holds_an_object_until_it_is_removed(cluster: Cluster) -> None:
    await cluster.create(a_thing(finalizers=("x/y",)))
    await cluster.delete(*KEY)
    marked = await cluster.get(*KEY)
    assert marked.metadata.deletion_timestamp
    with pytest.raises(Refused, match="finalizers"):
        await cluster.patch(*KEY, {"metadata": {"finalizers": ["x/y", "z/z"]}})
    await cluster.patch(*KEY, {"metadata": {"finalizers": []}})
    with pytest.raises(NotFound):
        await cluster.get(*KEY)


@local_only  # an API server gives a grace to pods alone: tests/kube/test_pods.py
async def test_a_second_deletion_may_shorten_the_grace(cluster: Cluster) -> None:
    await cluster.create(a_thing(finalizers=("x/y",)))
    await cluster.delete(*KEY, grace=30.0)
    first = await cluster.get(*KEY)
    await cluster.delete(*KEY, grace=60.0)
    await cluster.delete(*KEY)
    assert await cluster.get(*KEY) == first
    await cluster.delete(*KEY, grace=1.0)
    shorter = (await cluster.get(*KEY)).metadata
    assert shorter.deletion_grace_period_seconds == 1.0
    assert shorter.deletion_timestamp == first.metadata.deletion_timestamp


async def test_a_deletion_by_uid_spares_a_successor(cluster: Cluster) -> None:
    await cluster.create(a_thing())
    with pytest.raises(Conflict, match="another object"):
        await cluster.delete(*KEY, uid="somebody else")
    await cluster.get(*KEY)


async def test_what_an_object_owns_goes_with_it(cluster: Cluster) -> None:
    top = await cluster.create(a_thing("top"))
    middle = await cluster.create(a_thing("middle", owners=(top,)))
    await cluster.create(a_thing("leaf", owners=(middle,)))
    await cluster.create(a_thing("kept", owners=(middle,), finalizers=("x/y",)))
    await cluster.delete("Thing", "default", "top")
    assert await gone(cluster, "leaf")
    async with asyncio.timeout(60):
        while not (await cluster.get("Thing", "default", "kept")).metadata.deletion_timestamp:
            await asyncio.sleep(0.05)
    assert [p.metadata.name for p in (await cluster.list("Thing"))[0]] == ["kept"]


async def test_an_object_stays_while_one_owner_is_left(cluster: Cluster) -> None:
    owners = (await cluster.create(a_thing("x")), await cluster.create(a_thing("y")))
    await cluster.create(a_thing("child", owners=owners))
    await cluster.delete("Thing", "default", "x")
    await cluster.get("Thing", "default", "child")
    await cluster.delete("Thing", "default", "y")
    assert await gone(cluster, "child")


async def test_nothing_stays_for_an_owner_that_is_gone(cluster: Cluster) -> None:
    owner = await cluster.create(a_thing("owner"))
    await cluster.delete("Thing", "default", "owner")
    with suppress(NotFound):  # an API server makes it, and collects it then
        await cluster.create(a_thing("child", owners=(owner,)))
    assert await gone(cluster, "child")


@local_only
async def test_nothing_is_made_for_an_owner_that_is_gone(cluster: Cluster) -> None:
    owner = await cluster.create(a_thing("owner"))
    await cluster.delete("Thing", "default", "owner")
    with pytest.raises(NotFound, match="owner"):
        await cluster.create(a_thing("child", owners=(owner,)))


async def test_a_watch_tells_every_change_in_order(cluster: Cluster) -> None:
    since = await version(cluster)
    await cluster.create(a_thing())
    await cluster.create(
        Resource(api_version="test.ebbtide.dev/v1", kind="Other", metadata=Meta(name="o"))
    )
    await cluster.create(a_thing("b", namespace="other"))
    last = await cluster.patch_status(*KEY, {"a": 1})
    await cluster.delete(*KEY)
    seen = await changes(cluster, since, 3)
    assert [c.type for c in seen] == ["ADDED", "MODIFIED", "DELETED"]
    assert seen[1].resource == last
    assert seen[2].resource.status == {"a": 1}


async def test_a_watch_wakes_when_something_happens_later(cluster: Cluster) -> None:
    waiting = asyncio.create_task(changes(cluster, await version(cluster), 1))
    await asyncio.sleep(0.1)
    made = await cluster.create(a_thing())
    assert await waiting == [Change("ADDED", made)]


async def test_a_watch_from_forgotten_history_has_expired(cluster: Cluster) -> None:
    await cluster.create(a_thing())
    for n in range(150):
        await cluster.patch_status(*KEY, {"n": n})
    with pytest.raises(Conflict, match="expired"):
        await changes(cluster, "1", 1)


@local_only  # an API server waits for that future
async def test_a_watch_from_the_future_has_expired(cluster: Cluster) -> None:
    with pytest.raises(Conflict, match="expired"):
        await changes(cluster, "1000", 1)


async def test_a_watch_needs_a_version_of_this_store(cluster: Cluster) -> None:
    with pytest.raises(Refused, match="list returned"):
        await changes(cluster, "", 1)


async def test_logs_of_an_unknown_pod_are_not_found(cluster: Cluster) -> None:
    with pytest.raises(NotFound):
        _ = [line async for line in cluster.logs("default", "a", None, follow=False)]
