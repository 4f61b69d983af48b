"""The planner writes its pool: only its own, and never over what another wrote meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from ebbtide.errors import Conflict
from ebbtide.ports import Meta, Owner, Resource
from ebbtide.spec import API_VERSION
from ebbtide.testing.cluster import FakeCluster
from services.planner.app import pool
from services.planner.core.effects import ScalePool
from services.planner.settings import PlannerSettings

FIRST = {"job": "job", "replicas": 2}


async def a_job(kind: type[FakeCluster] = FakeCluster) -> tuple[FakeCluster, PlannerSettings]:
    """A job with its pool, and what its planner knows of it."""
    cluster = kind()
    job = await cluster.create(Resource(API_VERSION, "RLHFJob", Meta(name="job")))
    owner = Owner("RLHFJob", "job", job.metadata.uid)
    meta = Meta(name="job", owner_references=(owner,))
    await cluster.create(Resource(API_VERSION, "DecodePool", meta, FIRST))
    return cluster, settings_of(job.metadata.uid)


def settings_of(uid: str) -> PlannerSettings:
    return PlannerSettings(blobs_url="memory:///", job="job", job_uid=uid, pod="planner")


async def spec_of(cluster: FakeCluster) -> Any:
    return dict((await cluster.get("DecodePool", "default", "job")).spec)


def test_what_is_wanted_is_written_once() -> None:
    async def scenario() -> None:
        cluster, settings = await a_job()
        versions = set()
        for _ in range(2):
            assert await pool.scale(cluster, settings, ScalePool(1, ("job-decode-1",)))
            found = await cluster.get("DecodePool", "default", "job")
            versions.add(found.metadata.resource_version)
        assert found.spec == {**FIRST, "replicas": 1, "release": ["job-decode-1"]}
        assert len(versions) == 1

    asyncio.run(scenario())


def test_the_pool_of_another_job_of_that_name_is_left_alone() -> None:
    async def scenario() -> None:
        cluster, _ = await a_job()
        assert not await pool.scale(cluster, settings_of("another"), ScalePool(0, ()))
        assert await spec_of(cluster) == FIRST

    asyncio.run(scenario())


class Meanwhile(FakeCluster):
    """Somebody else writes the pool whenever it was read."""

    async def get(self, kind: str, namespace: str, name: str) -> Resource:
        found = await super().get(kind, namespace, name)
        await super().patch(kind, namespace, name, {"spec": {"replicas": 7}})
        return found


def test_a_write_between_reading_and_writing_is_not_undone() -> None:
    async def scenario() -> None:
        cluster, settings = await a_job(Meanwhile)
        with pytest.raises(Conflict):
            await pool.scale(cluster, settings, ScalePool(0, ()))
        assert (await spec_of(cluster))["replicas"] == 7

    asyncio.run(scenario())
