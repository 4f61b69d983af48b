"""The operator beside a real API server and thousands of fake pods: how late, how heavy, how exact.

`JOBS`, `ACTORS` and `RATE` in the environment change the size; the target is judged at its own
size alone. Needs what `make kube-tools` builds, and builds kwok.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from benchmarks.harness import Measured
from benchmarks.operator_scale.eyes import Eyes
from benchmarks.operator_scale.load import Load, percentile
from benchmarks.operator_scale.nodes import Binder, fake_nodes
from ebbtide_operator.core.site import KubeSite, NodePool, Site
from tests.worlds.kube import ROOT, ControlPlane, control_plane
from tests.worlds.platform import SYSTEM, rights

FULL = {"JOBS": 500, "ACTORS": 20, "RATE": 20}
CHANGE_SECONDS = 60.0
IDLE_SECONDS = 60.0
BUILD_SECONDS = 900.0
STORM = 100
LIMITS = {"written": 1.0, "reported": 2.0, "memory": 300.0, "storm": float(STORM), "calls": 1.0}
_USER = f"system:serviceaccount:{SYSTEM}:ebbtide-operator"
_OTHERS = 3
"""Pods of a job beside its actors."""


@dataclass(frozen=True)
class Size:
    """How much there is of everything."""

    jobs: int
    actors: int
    rate: float

    @property
    def full(self) -> bool:
        """Whether it is at least the size that the target is meant for."""
        return self.jobs >= FULL["JOBS"] and self.actors >= FULL["ACTORS"] and self.rate >= 20


@dataclass(frozen=True)
class Operator:
    """A running operator."""

    process: subprocess.Popen[bytes]
    calls: Path

    @property
    def peak_mib(self) -> float:
        """Most memory that it ever held (VmHWM)."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        kib = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
        return int(kib) / 1024

    @property
    def cpu_seconds(self) -> float:
        """Of its own, user and system."""
        text = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(text[11]) + int(text[12])) / os.sysconf("SC_CLK_TCK")

    def counted(self) -> int:
        """Requests that it made so far, by the API server's own log."""
        with self.calls.open("rb") as log:
            return sum(1 for _ in log)


def measure() -> Measured:
    """Build up, change at a steady rate, rest, then a storm; about ten minutes at full size."""
    found = {name: float(os.environ.get(name, default)) for name, default in FULL.items()}
    size = Size(int(found["JOBS"]), int(found["ACTORS"]), found["RATE"])
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with control_plane(folder, flags=_audit(folder)) as plane:
            return asyncio.run(_measure(plane, size))


async def _measure(plane: ControlPlane, size: Size) -> Measured:
    async with at_work(plane, size) as (load, operator):
        return await _play(load, operator, size)


@asynccontextmanager
async def at_work(plane: ControlPlane, size: Size) -> AsyncIterator[tuple[Load, Operator]]:
    """A namespace with an operator, nodes for so many pods, and whoever changes jobs there."""
    namespace = plane.namespace()
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    for document in rights(namespace):
        plane.apply(document)
    pods = size.jobs * (size.actors + _OTHERS) + STORM
    with fake_nodes(plane, pods) as nodes, _operator(plane, namespace) as operator:
        async with _load(plane, namespace, nodes, size) as load:
            yield load, operator


async def _play(load: Load, operator: Operator, size: Size) -> Measured:
    built = await load.build(BUILD_SECONDS)
    _say(f"{size.jobs} jobs and {size.jobs * size.actors} actors after {built:.0f} s")
    began = operator.cpu_seconds
    rate = await load.change(int(CHANGE_SECONDS * size.rate), size.rate)
    busy = operator.cpu_seconds - began
    _say(f"{rate:.1f} changes a second")
    await asyncio.sleep(5.0)
    calls, began = operator.counted(), operator.cpu_seconds
    await asyncio.sleep(IDLE_SECONDS)
    idle = (operator.counted() - calls) * 60 / IDLE_SECONDS / size.jobs
    resting = operator.cpu_seconds - began
    named, wrong, took = await load.storm(STORM)
    bare = percentile(load.delays.bare, 50)
    values = {
        "written": percentile(load.delays.written, 99) - bare,
        "reported": percentile(load.delays.reported, 99),
        "memory": operator.peak_mib,
        "calls": idle,
    }
    share = max(values[name] / LIMITS[name] for name in values)
    exact = wrong == 0 and named == min(STORM, size.jobs)
    delays = load.delays
    rows: list[list[object]] = [
        ["jobs, actors, changes/s", f"{size.jobs}, {size.jobs * size.actors}, {rate:.3g}", "", ""],
        ["s to build it all up", built, "", ""],
        ["s from a pool's spec to the child, p50", percentile(delays.written, 50), "", ""],
        ["the same, p99", percentile(delays.written, 99), "", ""],
        ["a bare write of that kind, p50", bare, "", ""],
        ["the same, p99", percentile(delays.bare, 99), "", ""],
        _judged("added, p99 (s)", values["written"], "written"),
        ["s from Ready to the status, p50", percentile(delays.reported, 50), "", ""],
        _judged("the same, p99", values["reported"], "reported"),
        _judged("operator, most memory (MiB)", values["memory"], "memory"),
        _judged("idle API calls a job and minute", values["calls"], "calls"),
        [f"named actors that left in the storm ({took:.3g} s)", named, min(STORM, size.jobs), ""],
        ["others that left or came", wrong, 0, "ok" if exact else "MISSED"],
        ["operator's cores while changing", busy / CHANGE_SECONDS, "", ""],
        ["operator's cores at rest", resting / IDLE_SECONDS, "", ""],
    ]
    value = share if exact and size.full and rate > 0.95 * size.rate else float("nan")
    return Measured(value=value, columns=["what", "measured", "limit", ""], rows=rows)


def _judged(what: str, value: float, name: str) -> list[object]:
    return [what, value, LIMITS[name], "ok" if value <= LIMITS[name] else "MISSED"]


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


def _audit(folder: Path) -> list[str]:
    """Flags with which the API server writes one line for each request of the operator's."""
    rules = [
        {"level": "Metadata", "users": [_USER], "omitStages": ["RequestReceived"]},
        {"level": "None"},
    ]
    policy = folder / "audit.json"
    kind = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
    policy.write_text(json.dumps({**kind, "rules": rules}))
    log = folder / "audit.log"
    log.touch()
    return [f"--audit-policy-file={policy}", f"--audit-log-path={log}"]


@contextmanager
def _operator(plane: ControlPlane, namespace: str) -> Iterator[Operator]:
    """The program as a pod runs it, with its own account's rights."""
    token = plane.token(SYSTEM, "ebbtide-operator")
    pool = NodePool(resources={"nvidia.com/gpu": "1"})
    site = Site(kubernetes=KubeSite(image="ebbtide:test", pools={"h200": pool}))
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}",
        "HOME": str(plane.folder),
        "EBBTIDE_CLUSTER": f"kubernetes:{plane.kubeconfig(token)}",
        "EBBTIDE_BLOBS_URL": (plane.folder / "blobs").as_uri(),
        "EBBTIDE_NAMESPACE": namespace,
        "EBBTIDE_LEASE_NAMESPACE": namespace,
        "EBBTIDE_SITE": msgspec.json.encode(site).decode(),
        "EBBTIDE_LOG_LEVEL": "warning",
    }
    with (plane.folder / "operator.log").open("ab") as log:
        command = [sys.executable, "-m", "ebbtide_operator"]
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            yield Operator(process, plane.folder / "audit.log")
        except BaseException:
            _say((plane.folder / "operator.log").read_text()[-3000:])
            raise
        finally:
            process.kill()
            process.wait()


@asynccontextmanager
async def _load(
    plane: ControlPlane, namespace: str, nodes: list[str], size: Size
) -> AsyncIterator[Load]:
    """People and planners with eyes and a scheduler; kwok must be at work."""
    async with plane.cluster() as admin, plane.cluster() as watcher:
        binder = Binder(api=admin.api, namespace=namespace, nodes=nodes)
        eyes = Eyes(api=watcher.api, namespace=namespace, unplaced=binder.place)
        tasks = [asyncio.create_task(work) for work in (eyes.watch(), binder.work())]
        try:
            yield Load(admin=admin, eyes=eyes, jobs=size.jobs, actors=size.actors)
        finally:
            for task in tasks:
                task.cancel()
            for task in tasks:
                with suppress(asyncio.CancelledError):
                    await task
