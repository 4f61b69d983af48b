"""The operator beside a real API server and thousands of fake pods: how late, how heavy, how exact.

One change is one pool's `replicas` patched by one: upwards, or downwards with the actor named that
is to go. The operator's answer is the pod that is made or ended; of a pod that was made, kwok then
says that it is ready, and the operator counts it in the pool's status.

What the operator *adds* is the time in which the server waits for it: from the server's answer to
the patch until the request for the child has come, and from the server's answer to kwok's `Ready`
until the status has come that counts it (`trail`: the server's audit log). In it are the server's
news to the operator and whatever the operator asks before, not the two writes themselves; the whole,
from the first request to the other's answer, is printed beside it, and so is the server's own time
for a write of each kind and for news on a watch that does nothing else.

`JOBS`, `ACTORS` and `RATE` in the environment change the size, and `SECONDS` the time of changes; the
target is judged at its own size alone, and only if the server took the changes at their rate. Needs
what `make kube-tools` builds, and builds kwok.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from benchmarks.harness import Measured
from benchmarks.operator_scale.eyes import Eyes
from benchmarks.operator_scale.load import Load
from benchmarks.operator_scale.nodes import Binder, fake_nodes
from benchmarks.operator_scale.programs import OTHERS, times
from benchmarks.operator_scale.trail import (
    OPERATOR,
    PODS,
    POOLS,
    STARTED,
    TOLD,
    Delays,
    Request,
    Trail,
    delays,
    policy,
)
from ebbtide_operator.core.site import KubeSite, NodePool, Site
from tests.worlds.kube import ROOT, ControlPlane, control_plane
from tests.worlds.platform import SYSTEM, rights

FULL = {"JOBS": 500, "ACTORS": 20, "RATE": 20, "SECONDS": 60}
IDLE_SECONDS = 60.0
BUILD_SECONDS = 900.0
STORM = 100
LIMITS = {"written": 1.0, "reported": 2.0, "memory": 300.0, "calls": 1.0}
SERVER = {"GOGC": "400"}
"""The API server's: collected a fourth as often, it has the memory of a real one's machine."""
_OTHERS = 3
"""Pods of a job beside its actors."""
_KEPT_PACE = 0.95


@dataclass(frozen=True)
class Size:
    """How much there is of everything."""

    jobs: int
    actors: int
    rate: float
    seconds: float

    @property
    def full(self) -> bool:
        """Whether it is at least the size that the target is meant for."""
        given = {"JOBS": self.jobs, "ACTORS": self.actors, "RATE": self.rate}
        return all(given[name] >= FULL[name] for name in given) and self.seconds >= FULL["SECONDS"]


@dataclass(frozen=True)
class Operator:
    """A running operator, and what the API server logs."""

    process: subprocess.Popen[bytes]
    trail: Trail

    @property
    def peak_mib(self) -> float:
        """Most memory that it ever held (VmHWM)."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        kib = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
        return int(kib) / 1024


@dataclass(frozen=True)
class Part:
    """What went on for `seconds`: requests, and CPU seconds by program."""

    seconds: float
    requests: Sequence[Request]
    cpu: dict[str, float]

    @property
    def calls(self) -> int:
        """Requests of the operator's."""
        return sum(one.user == OPERATOR for one in self.requests)


def measure() -> Measured:
    """Build up, change at a steady rate, rest, then a storm; about ten minutes at full size."""
    found = {name: float(os.environ.get(name, default)) for name, default in FULL.items()}
    size = Size(int(found["JOBS"]), int(found["ACTORS"]), found["RATE"], found["SECONDS"])
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with control_plane(folder, flags=_audit(folder), environ=SERVER) as plane:
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
    trail = operator.trail
    async with _part(trail) as building:
        await load.build(BUILD_SECONDS)
    _say(f"{size.jobs} jobs and {size.jobs * size.actors} actors after {building[0].seconds:.0f} s")
    async with _part(trail) as changing:
        await load.change(int(size.seconds * size.rate), size.rate)
    seen = delays(changing[0].requests, load.changes)
    _say(f"{seen.rate:.1f} changes a second")
    await asyncio.sleep(5.0)
    async with _part(trail) as resting:
        await asyncio.sleep(IDLE_SECONDS)
    named, wrong, took = await load.storm(STORM)
    values = {
        "written": percentile(seen.written, 99),
        "reported": percentile(seen.reported, 99),
        "memory": operator.peak_mib,
        "calls": resting[0].calls * 60 / resting[0].seconds / size.jobs,
    }
    wanted = min(STORM, size.jobs)
    exact = wrong == 0 and named == wanted
    rows: list[list[object]] = [
        ["jobs, actors", f"{size.jobs}, {size.jobs * size.actors}", "", ""],
        ["changes a second", seen.rate, f">= {_KEPT_PACE * size.rate:g}", ""],
        *_latencies(seen, values),
        *_servers(seen, changing[0].requests),
        _judged("operator, most memory (MiB)", values["memory"], "memory"),
        _judged("idle API calls a job and minute", values["calls"], "calls"),
        [f"named actors that left in the storm ({took:.3g} s)", named, wanted, ""],
        ["others that left or came", wrong, 0, "ok" if exact else "MISSED"],
        ["the operator's requests for each change", changing[0].calls / len(seen.written), "", ""],
        _each(changing[0], len(seen.written)),
        *_cores("building up", building[0]),
        *_cores("changing", changing[0]),
        *_cores("at rest", resting[0]),
    ]
    share = max(values[name] / LIMITS[name] for name in values)
    value = share if exact and size.full and seen.rate >= _KEPT_PACE * size.rate else float("nan")
    return Measured(value=value, columns=["what", "measured", "limit", ""], rows=rows)


@asynccontextmanager
async def _part(trail: Trail) -> AsyncIterator[list[Part]]:
    """A list that holds, afterwards, what went on within."""
    trail.read()
    found: list[Part] = []
    before, began = times(), asyncio.get_running_loop().time()
    yield found
    seconds = asyncio.get_running_loop().time() - began
    used = times().since(before)
    found.append(Part(seconds, trail.read(), used))


# --- the table ------------------------------------------------------------------------------------


def percentile(values: Sequence[float], percent: float) -> float:
    """NaN where there is nothing."""
    return float(np.percentile(values, percent)) if values else float("nan")


def _latencies(seen: Delays, values: dict[str, float]) -> list[list[object]]:
    return [
        ["s added from a pool's spec to the child, p50", percentile(seen.written, 50), "", ""],
        _judged("the same, p99", values["written"], "written"),
        ["s in all, the server's own with it, p50", percentile(seen.written_whole, 50), "", ""],
        ["the same, p99", percentile(seen.written_whole, 99), "", ""],
        ["s added from Ready to the status, p50", percentile(seen.reported, 50), "", ""],
        _judged("the same, p99", values["reported"], "reported"),
        ["s in all, the server's own with it, p50", percentile(seen.reported_whole, 50), "", ""],
        ["the same, p99", percentile(seen.reported_whole, 99), "", ""],
    ]


def _servers(seen: Delays, requests: Sequence[Request]) -> list[list[object]]:
    """What the server takes by itself."""
    kinds = {
        "patch of a pool": ("patch", POOLS),
        "making of a pod": ("create", PODS),
        "patch of a pod's status": ("patch", STARTED),
        "patch of a pool's status": ("patch", TOLD),
        "patch of a job's status": ("patch", "rlhfjobs/status"),
    }
    rows: list[list[object]] = []
    for what, (verb, resource) in kinds.items():
        took = [one.took for one in requests if (one.verb, one.what) == (verb, resource)]
        words = f"{percentile(took, 50):.3g}, {percentile(took, 99):.3g}"
        rows.append([f"s of the server's for a {what}, p50 and p99 of {len(took)}", words, "", ""])
    words = f"{percentile(seen.watched, 50):.3g}, {percentile(seen.watched, 99):.3g}"
    return [*rows, ["s from its answer to news on a bare watch, p50 and p99", words, "", ""]]


def _each(part: Part, changes: int) -> list[object]:
    """What a change costs in all: at which rate it would fill how many cores."""
    ours = {name: n * 1000 / max(1, changes) for name, n in part.cpu.items() if name != OTHERS}
    words = ", ".join(f"{name} {n:.1f}" for name, n in ours.items())
    return ["ms of CPU for each change", f"{sum(ours.values()):.0f}: {words}", "", ""]


def _cores(when: str, part: Part) -> list[list[object]]:
    used = ", ".join(f"{name} {n / part.seconds:.2f}" for name, n in part.cpu.items())
    return [[f"cores while {when}, {part.seconds:.0f} s", used, "", ""]]


def _judged(what: str, value: float, name: str) -> list[object]:
    return [what, value, LIMITS[name], "ok" if value <= LIMITS[name] else "MISSED"]


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)


# --- programs -------------------------------------------------------------------------------------


def _audit(folder: Path) -> list[str]:
    """Flags with which the API server writes one line for each request that counts."""
    rules, log = folder / "audit.json", folder / "audit.log"
    rules.write_text(policy())
    log.touch()
    return [f"--audit-policy-file={rules}", f"--audit-log-path={log}"]


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
            yield Operator(process, Trail(plane.folder / "audit.log"))
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
