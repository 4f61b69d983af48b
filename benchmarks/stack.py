"""A whole local stack for measurements and end-to-end tests: start, look, kill, stop.

It uses what a user has: `ebbtide up`, the gateway's client, and the objects in the local store.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from ebbtide import labels
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.cluster_sqlite import open_cluster
from ebbtide.api import Job
from ebbtide.client import Client, Unreachable
from ebbtide.endpoint import Up, read_up
from ebbtide.ports import Resource

T = TypeVar("T")
ROOT = Path(__file__).resolve().parents[1]
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Pod:
    """One pod as its object says. `pid` is 0 while there is no process."""

    name: str
    namespace: str
    uid: str
    role: str
    phase: str
    ready: bool
    pid: int


@dataclass(frozen=True)
class Stack:
    """A running stack in the folder `state`."""

    state: Path
    client: Client

    @property
    def up(self) -> Up:
        """What up.json says now."""
        found = read_up(self.state)
        assert found is not None, "the stack is down"
        return found

    @property
    def blobs(self) -> Path:
        """Root of the blob store."""
        return self.state / "blobs"

    @property
    def audits(self) -> list[Path]:
        """The actors' logs of what was settled."""
        return sorted((self.state / "audit").glob("*"))

    def pods(self, job: str, role: str = "") -> list[Pod]:
        """The job's pods that are not being deleted, by name."""
        wanted = {labels.JOB: job} | ({labels.ROLE: role} if role else {})
        found = asyncio.run(self._list("Pod", wanted))
        living = [r for r in found if r.metadata.deletion_timestamp is None]
        return sorted((_pod(r) for r in living), key=lambda pod: pod.name)

    def gone(self, job: str) -> bool:
        """Whether no pod object of the job is left: all its processes have been reaped."""
        return not asyncio.run(self._list("Pod", {labels.JOB: job}))

    async def _list(self, kind: str, wanted: Mapping[str, str]) -> list[Resource]:
        async with open_cluster(self.state / "cluster.sqlite", clock=SystemClock()) as cluster:
            return (await cluster.list(kind, labels=wanted))[0]

    def report(self, pod: Pod, **status: object) -> None:
        """Write a pod's status, as whoever looks after its node would."""
        asyncio.run(self._patch_status(pod, status))

    async def _patch_status(self, pod: Pod, status: Mapping[str, object]) -> None:
        async with open_cluster(self.state / "cluster.sqlite", clock=SystemClock()) as cluster:
            await cluster.patch_status("Pod", pod.namespace, pod.name, status)

    def release(self, job: str, actor: str, *, replicas: int) -> None:
        """Wish for `replicas` actors in the job's pool beside `actor`, which is to go."""
        asyncio.run(self._wish(job, {"replicas": replicas, "release": [actor]}))

    async def _wish(self, job: str, wanted: Mapping[str, object]) -> None:
        async with open_cluster(self.state / "cluster.sqlite", clock=SystemClock()) as cluster:
            [pool] = [p for p in (await cluster.list("DecodePool"))[0] if p.metadata.name == job]
            await cluster.patch("DecodePool", pool.metadata.namespace, job, {"spec": wanted})

    def submit(self, name: str, spec: Mapping[str, Any]) -> Job:
        """Create the job over REST."""
        document = {
            "apiVersion": "rlhf.ebbtide.dev/v1alpha1",
            "kind": "RLHFJob",
            "metadata": {"name": name},
            "spec": spec,
        }
        return self.client.submit(document)

    def ended(self, name: str) -> Job | None:
        """The job, if it has ended and the gateway is there to say so."""
        try:
            job = self.client.get(name)
        except Unreachable:
            return None
        return job if job.terminal else None

    def finished(self, name: str, *, seconds: float) -> Job:
        """Wait for the job's end, whichever it is."""
        return until(
            lambda: self.ended(name),
            seconds=seconds,
            what=lambda: f"the end of {name}: {_state(self.client.get(name))}",
        )


def _pod(resource: Resource) -> Pod:
    return Pod(
        name=resource.metadata.name,
        namespace=resource.metadata.namespace,
        uid=resource.metadata.uid,
        role=resource.metadata.labels.get(labels.ROLE, ""),
        phase=resource.status.get("phase", ""),
        ready=resource.status.get("ready", False),
        pid=resource.status.get("pid", 0),
    )


def _state(job: Job) -> str:
    return f"{job.state} {job.reason} {job.message} {job.status.get('progress')}"


def until(probe: Callable[[], T | None], *, seconds: float, what: Callable[[], str] | str) -> T:
    """Ask `probe` until it gives something; raises AssertionError at the deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := probe():
            return found
        time.sleep(POLL_SECONDS)
    text = what if isinstance(what, str) else what()
    raise AssertionError(f"not within {seconds:.0f} s: {text}")


@contextmanager
def running(
    state: Path, *, seconds: float = 120.0, environ: Mapping[str, str] | None = None
) -> Iterator[Stack]:
    """Start a stack in the new folder `state`, end it and all its processes afterwards.

    `environ`: more variables that it is started with.
    """
    state.mkdir(parents=True, exist_ok=True)
    options = ("--port", "0", "--timeout", f"{seconds:.0f}", "--json")
    up = _cli("up", state, *options, environ=environ or {})
    said = json.loads(up.stdout)
    token = Path(said["tokenFile"]).read_text().strip()
    try:
        with Client(url=said["url"], token=token) as client:
            yield Stack(state, client)
    finally:
        _cli("down", state)


def _cli(
    command: str, state: Path, *more: str, environ: Mapping[str, str] = MappingProxyType({})
) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, "-m", "ebbtide.cli", command, "--state-dir", str(state), *more],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment() | dict(environ),
        check=False,
    )
    assert done.returncode == 0, f"ebbtide {command}: {done.stdout}{done.stderr}"
    return done


def environment() -> dict[str, str]:
    """The environment that a stack starts in."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("EBBTIDE_", "PYTEST"))}
    return kept | {"PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}", "HF_HUB_OFFLINE": "1"}
