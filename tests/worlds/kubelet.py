"""A kubelet and a scheduler in a few lines, by script: pods of one namespace run as told."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from ebbtide.adapters.cluster_kubernetes.api import MERGE, Api
from ebbtide.errors import Conflict, NotFound

NODE = "node-1"


class Kubelet:
    """Places every pod, starts it, lets it be ready, and ends it when it is deleted.

    `held`: pods that are not placed. `stubborn`: pods that do not end when asked to. `places`: nodes
    of pods that are not placed on the usual one.
    """

    def __init__(self, *, api: Api, namespace: str) -> None:
        self._api, self._path = api, f"/api/v1/namespaces/{namespace}/pods"
        self.held: set[str] = set()
        self.stubborn: set[str] = set()
        self.places: dict[str, str] = {}
        self.started: list[str] = []

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[Kubelet]:
        """Runs as long as the context."""
        task = asyncio.create_task(self._work())
        try:
            yield self
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def pods(self) -> dict[str, dict[str, Any]]:
        """The pods as the API server has them, by name."""
        data = await self._api.call("GET", self._path, what="pods")
        return {pod["metadata"]["name"]: pod for pod in msgspec.json.decode(data)["items"]}

    async def names(self, part: str = "") -> list[str]:
        """Names of the pods that are not on their way out."""
        pods = (await self.pods()).items()
        return sorted(n for n, p in pods if part in n and "deletionTimestamp" not in p["metadata"])

    async def end(
        self, name: str, code: int, *, reason: str = "Error", message: str = "", **status: Any
    ) -> None:
        """The process is over: `code` above 128 is a signal, as containers tell it."""
        started = (await self._pod(name))["status"]["startTime"]
        state = {
            "exitCode": code,
            "reason": reason,
            "message": message,
            "startedAt": started,
            "finishedAt": _now(),
        }
        ended = {
            "phase": "Failed" if code else "Succeeded",
            "conditions": [{"type": "Ready", "status": "False"}],
            "containerStatuses": [_container({"terminated": state}, ready=False)],
        }
        await self._status(name, ended | status)

    async def _work(self) -> None:
        while True:
            for name, pod in (await self.pods()).items():
                with suppress(NotFound, Conflict):
                    await self._care(name, pod)
            await asyncio.sleep(0.05)

    async def _care(self, name: str, pod: dict[str, Any]) -> None:
        phase = pod["status"].get("phase", "Pending")
        if "deletionTimestamp" in pod["metadata"]:
            if "nodeName" in pod["spec"] and name not in self.stubborn:
                await self._bury(name, phase)
        elif "nodeName" not in pod["spec"]:
            if name not in self.held:
                await self._bind(name)
        elif phase == "Pending":
            await self._start(name)

    async def _bind(self, name: str) -> None:
        head = {"apiVersion": "v1", "kind": "Binding"}
        target = {"kind": "Node", "name": self.places.get(name, NODE)}
        body = {**head, "metadata": {"name": name}, "target": target}
        await self._api.call("POST", f"{self._path}/{name}/binding", what=name, body=body)

    async def _start(self, name: str) -> None:
        now = _now()
        self.started.append(name)
        running = {
            "phase": "Running",
            "startTime": now,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": now}],
            "containerStatuses": [_container({"running": {"startedAt": now}}, ready=True)],
        }
        await self._status(name, running)

    async def _bury(self, name: str, phase: str) -> None:
        if phase == "Running":
            await self.end(name, 0, reason="Completed")
        pod = await self._pod(name)
        if pod["metadata"]["deletionGracePeriodSeconds"]:
            body = {"gracePeriodSeconds": 0}
            await self._api.call("DELETE", f"{self._path}/{name}", what=name, body=body)

    async def _pod(self, name: str) -> dict[str, Any]:
        data = await self._api.call("GET", f"{self._path}/{name}", what=name)
        pod: dict[str, Any] = msgspec.json.decode(data)
        return pod

    async def _status(self, name: str, status: dict[str, Any]) -> None:
        path, body = f"{self._path}/{name}/status", {"status": status}
        await self._api.call("PATCH", path, what=name, body=body, content_type=MERGE)


def _container(state: dict[str, Any], *, ready: bool) -> dict[str, Any]:
    return {
        "name": "main",
        "image": "i",
        "imageID": "i",
        "ready": ready,
        "restartCount": 0,
        "state": state,
    }


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
