"""The operator on a real API server beside a scripted kubelet: what its tests are played on."""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import msgspec
import structlog
from prometheus_client import CollectorRegistry

from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.cluster_kubernetes import KubernetesCluster
from ebbtide.errors import NotFound
from ebbtide.ports import Cluster, Resource
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.jobs import a_job
from ebbtide_operator.controller import Controller
from ebbtide_operator.core.render import Renderer
from ebbtide_operator.core.site import KubeSite, Site
from ebbtide_operator.lease import Lease
from ebbtide_operator.metrics import OperatorMetrics
from tests.worlds import chart
from tests.worlds.kube import ControlPlane
from tests.worlds.kubelet import Kubelet

QUIET = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(50))
SITE = Site(
    kubernetes=KubeSite(image="ebbtide:test"),
    secret_env={"decode": {"EBBTIDE_NATS_PASSWORD": "nats/decode"}},
    usage_seconds=600.0,
)
SYSTEM = chart.SYSTEM
WAIT_SECONDS = 60.0
Wrap = Callable[[Cluster], Cluster]
ALL = [
    "job-decode-0",
    "job-decode-1",
    "job-learner-1-0",
    "job-learner-1-1",
    "job-planner-1-0",
    "job-reward-0",
]
"""Pods of a job as `submit` makes it."""


class Dead(BaseException):
    """The end of an operator, at a place of the test's choosing."""


class Platform:
    """One namespace with a kubelet, and operators that come and go."""

    def __init__(self, plane: ControlPlane, namespace: str, admin: KubernetesCluster) -> None:
        self.plane, self.namespace, self.admin = plane, namespace, admin
        self.kubelet = Kubelet(api=admin.api, namespace=namespace)
        self.blobs = FakeBlobs()
        self._operators = 0

    # --- people -------------------------------------------------------------------------------------

    async def submit(self, name: str = "job", **changes: Any) -> Resource:
        """Create a job in this namespace."""
        job = a_job(name, **changes)
        return await self.admin.create(_within(job, self.namespace))

    async def change(self, body: Mapping[str, Any], name: str = "job") -> None:
        """Patch the job's spec."""
        await self.admin.patch("RLHFJob", self.namespace, name, {"spec": body})

    async def delete(self, name: str = "job") -> None:
        """Delete the job."""
        await self.admin.delete("RLHFJob", self.namespace, name)

    # --- what there is --------------------------------------------------------------------------------

    async def status(self, name: str = "job") -> Mapping[str, Any]:
        """Of the job."""
        return (await self.admin.get("RLHFJob", self.namespace, name)).status

    async def holds(self, kind: str, name: str = "job") -> bool:
        """Whether the condition is True."""
        found = (await self.status(name)).get("conditions", [])
        return any(c["type"] == kind and c["status"] == "True" for c in found)

    async def until(self, kind: str, name: str = "job") -> None:
        """Wait for a condition."""
        await self.eventually(lambda: self.holds(kind, name))

    async def eventually(self, holds: Callable[[], Awaitable[bool]]) -> None:
        """Wait until it holds; the status and the pods are in the failure."""
        until = asyncio.get_running_loop().time() + WAIT_SECONDS
        while not await holds():
            if asyncio.get_running_loop().time() > until:
                pods = await self.kubelet.names()
                with suppress(NotFound):
                    raise AssertionError(f"{pods}: {await self.status()}")
                raise AssertionError(f"{pods}, and no job")
            await asyncio.sleep(0.05)

    async def left(self) -> list[str]:
        """Every object of the namespace that a job could have left behind."""
        kinds = ("RLHFJob", "DecodePool", "Pod", "Service", "ServiceAccount", "Role", "RoleBinding")
        found: list[str] = []
        for kind in kinds:
            objects, _ = await self.admin.list(kind, self.namespace)
            names = [one.metadata.name for one in objects]
            found += [f"{kind} {name}" for name in names if not name.startswith("ebbtide-")]
        return found

    # --- the operator and the planner ------------------------------------------------------------------

    @asynccontextmanager
    async def operator(
        self, *, wrap: Wrap | None = None, url: str = ""
    ) -> AsyncIterator[Controller]:
        """An operator with its own account's rights; it may die before the context ends."""
        self._operators += 1
        async with AsyncExitStack() as stack:
            assert SITE.kubernetes is not None
            real = await stack.enter_async_context(
                self.plane.cluster(
                    token=self.plane.token(SYSTEM, "ebbtide-operator"),
                    manager="ebbtide-operator",
                    render=Renderer(SITE.kubernetes),
                    url=url,
                )
            )
            controller, lease = self._controller(real, wrap(real) if wrap else real)
            task = asyncio.create_task(_run(controller, lease))
            try:
                yield controller
            finally:
                task.cancel()
                await _ended(task)
                del task
                await self.free_lease()
                _forget_connections()

    def _controller(self, real: Cluster, seen: Cluster) -> tuple[Controller, Lease]:
        clock = SystemClock()
        lease = Lease(
            cluster=real,
            clock=clock,
            holder=f"operator-{self._operators}",
            seconds=15.0,
            namespace=self.namespace,
        )
        controller = Controller(
            cluster=seen,
            blobs=self.blobs,
            clock=clock,
            lease=lease,
            site=SITE,
            namespace=self.namespace,
            metrics=OperatorMetrics(CollectorRegistry(), since=clock.wall()),
            log=QUIET,
        )
        return controller, lease

    async def free_lease(self) -> None:
        """Spare the next operator the wait for a dead one's lease."""
        with suppress(NotFound):
            await self.admin.delete("Lease", self.namespace, "ebbtide-operator")

    @asynccontextmanager
    async def planner(self) -> AsyncIterator[KubernetesCluster]:
        """The API with the rights of the job's planner."""
        job = await self.admin.get("RLHFJob", self.namespace, "job")
        account = f"job-planner-{job.metadata.uid[:8]}"
        token = self.plane.token(self.namespace, account)
        async with self.plane.cluster(token=token, manager="ebbtide-planner") as cluster:
            yield cluster

    async def report(self, **progress: Any) -> None:
        """What the planner writes of itself."""
        async with self.planner() as planner:
            status = {"progress": progress}
            await planner.patch_status("RLHFJob", self.namespace, "job", status)


@asynccontextmanager
async def platform(plane: ControlPlane) -> AsyncIterator[Platform]:
    """A fresh namespace with a kubelet at work."""
    namespace = plane.namespace()
    plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM}})
    for document in rights(namespace):
        plane.apply(document)
    async with plane.cluster() as admin:
        found = Platform(plane, namespace, admin)
        await found.eventually(lambda: asyncio.to_thread(_rights_hold, plane, namespace))
        async with found.kubelet.at_work():
            yield found


def _rights_hold(plane: ControlPlane, namespace: str) -> bool:
    """Whether the authorizer has heard of the roles of this namespace."""
    wanted = {
        "namespace": namespace,
        "verb": "list",
        "group": "rlhf.ebbtide.dev",
        "resource": "rlhfjobs",
    }
    user = f"system:serviceaccount:{SYSTEM}:ebbtide-gateway"
    review = {"spec": {"user": user, "resourceAttributes": wanted}}
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    return bool(plane.call("POST", path, review)["status"]["allowed"])


def rights(namespace: str) -> Iterator[dict[str, Any]]:
    """Accounts, roles and policies of the chart: `namespace` has the jobs, and here the lease too."""
    for one in chart.rendered():
        if one["kind"].startswith(("ServiceAccount", "ValidatingAdmission", "ClusterRole")):
            yield one
        elif one["kind"].startswith("Role"):
            yield {**one, "metadata": one["metadata"] | {"namespace": namespace}}


def _forget_connections() -> None:
    """Collect what a killed operator left open, now and here: nobody closes it, as in life."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()


async def _ended(task: asyncio.Task[None]) -> None:
    """Wait for the end of an operator; any but its cancellation and its planned death is a fault."""
    with suppress(asyncio.CancelledError):
        try:
            await task
        except BaseExceptionGroup as group:
            rest = group.split(Dead)[1]
            if rest is not None:
                raise rest from None


async def _run(controller: Controller, lease: Lease) -> None:
    await lease.acquire()
    async with asyncio.TaskGroup() as group:
        for work in (
            controller.cache.follow(),
            controller.work(),
            controller.resync(),
            lease.keep(),
        ):
            group.create_task(work)


def _within(resource: Resource, namespace: str) -> Resource:
    meta = msgspec.structs.replace(resource.metadata, namespace=namespace)
    return msgspec.structs.replace(resource, metadata=meta)
