"""Thousands of pods that only seem to run: kwok plays the kubelets, and we the scheduler."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ebbtide.adapters.cluster_kubernetes.api import Api
from ebbtide.errors import Conflict, NotFound
from tests.worlds.kube import ROOT, ControlPlane, start

STAGES = Path(__file__).with_name("stages.yaml")
PER_NODE = 250
_BINDERS = 8


def kwok() -> str:
    """Where kwok is; built into the user's cache if it is not there."""
    script = ROOT / "deploy/kube-tools/kwok/build.sh"
    return subprocess.run([script], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


@contextmanager
def fake_nodes(plane: ControlPlane, pods: int) -> Iterator[list[str]]:
    """Names of nodes with a fake GPU for each of `pods` and some room; kwok runs what they get."""
    names = [f"fake-{n}" for n in range(pods // PER_NODE + 2)]
    for name in names:
        plane.apply(_node(name))
    with ExitStack() as stack:
        flags = (
            "--manage-all-nodes=true",
            f"--config={STAGES}",
            "--node-lease-duration-seconds=40",
        )
        start(plane.folder, stack, kwok(), f"--kubeconfig={plane.kubeconfig()}", *flags)
        yield names


def _node(name: str) -> dict[str, object]:
    room = {"cpu": "1k", "memory": "16Ti", "pods": "1k", "nvidia.com/gpu": str(PER_NODE)}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"ebbtide.dev/pool": "h200"}},
        "status": {"capacity": room, "allocatable": room},
    }


class Binder:
    """Places pods on nodes in turn; a pod that is gone by then is left."""

    def __init__(self, *, api: Api, namespace: str, nodes: list[str]) -> None:
        self._api, self._namespace, self._nodes = api, namespace, nodes
        self._pods: asyncio.Queue[str] = asyncio.Queue()
        self._placed = 0

    def place(self, pod: str) -> None:
        """Have the pod placed soon."""
        self._pods.put_nowait(pod)

    async def work(self) -> None:
        """Place pods for ever."""
        async with asyncio.TaskGroup() as group:
            for _ in range(_BINDERS):
                group.create_task(self._work())

    async def _work(self) -> None:
        while True:
            pod = await self._pods.get()
            self._placed += 1
            node = self._nodes[self._placed % len(self._nodes)]
            with suppress(NotFound, Conflict):
                await self._bind(pod, node)

    async def _bind(self, pod: str, node: str) -> None:
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod},
            "target": {"kind": "Node", "name": node},
        }
        path = f"/api/v1/namespaces/{self._namespace}/pods/{pod}/binding"
        await self._api.call("POST", path, what=pod, body=body)
