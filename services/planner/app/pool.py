"""The job's DecodePool: how many actors there are to be, and who goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ebbtide.ports import Cluster
from services.planner.core.effects import ScalePool
from services.planner.settings import PlannerSettings

KIND = "DecodePool"


async def scale(cluster: Cluster, settings: PlannerSettings, effect: ScalePool) -> bool:
    """Write what differs, for the operator makes the pool with what the job says.

    Returns whether the pool is this job's: one of another job that has its name now is left alone.
    Raises Conflict if somebody else wrote meanwhile.
    """
    pool = await cluster.get(KIND, settings.namespace, settings.job)
    if settings.job_uid not in {owner.uid for owner in pool.metadata.owner_references}:
        return False
    wanted = {"replicas": effect.replicas, "release": list(effect.release)}
    if _differs(pool.spec, wanted):
        await cluster.patch(
            KIND,
            settings.namespace,
            settings.job,
            {"spec": wanted},
            resource_version=pool.metadata.resource_version,
        )
    return True


def _differs(spec: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    release: Sequence[str] = spec.get("release", ())
    return bool(spec.get("replicas") != wanted["replicas"] or list(release) != wanted["release"])
