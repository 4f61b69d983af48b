"""Opens the objects that a setting names: a SQLite file, or the Kubernetes API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from ebbtide.adapters.cluster_sqlite import open_cluster
from ebbtide.errors import Permanent
from ebbtide.ports import Clock, Cluster, Resource

KUBERNETES = "kubernetes"


def is_kubernetes(where: str) -> bool:
    """Whether the setting names the Kubernetes API: `kubernetes`, or `kubernetes:KUBECONFIG`."""
    return where.partition(":")[0] == KUBERNETES


@asynccontextmanager
async def open_objects(
    where: str,
    *,
    clock: Clock,
    manager: str,
    render: Callable[[Resource], Mapping[str, Any]] | None = None,
) -> AsyncIterator[Cluster]:
    """`where`: as the setting says. `manager`: who writes are recorded as by the API server.

    `render`: how this program makes pods there, if it does. Raises Permanent.
    """
    if not is_kubernetes(where):
        async with open_cluster(Path(where), clock=clock) as local:
            yield local
        return
    try:
        from ebbtide.adapters.cluster_kubernetes import (  # noqa: PLC0415 - not every machine has it
            open_kubernetes,
        )
    except ImportError as error:
        raise Permanent(f"install ebbtide[kubernetes] to reach the API server: {error}") from error
    async with open_kubernetes(
        manager=manager, clock=clock, kubeconfig=where.partition(":")[2], render=render
    ) as cluster:
        yield cluster
