"""What a Pod object says: the operator writes the spec, the process runner the status (pure).

On Kubernetes `core.render` makes containers of it, and the kubelet writes the status.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ebbtide.objects import unix_time
from ebbtide.ports import Resource

USAGE_FINALIZER = "rlhf.ebbtide.dev/usage"
"""Holds a pod object until the operator has written how long the pod was held."""
RUNNER_FINALIZER = "rlhf.ebbtide.dev/runner"
"""Holds a pod object until the process runner has ended its process."""


class PodSpec(
    msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, omit_defaults=True
):
    """One process. `secret_env`: variables by the name of the secret that holds the value.

    `warm`: fork it from the parent that has torch imported. `probe`: it answers at
    EBBTIDE_HEALTH_PORT, which the runner chooses. `interpreter`: name of the environment whose Python
    runs it; empty: the platform's own. On Kubernetes the image decides.

    Only Kubernetes knows the others. `account`: service account whose token the pod gets; empty:
    it gets none. `peers`: service by which other pods find it. `node_name`: where it was placed. `template`: the job's own
    additions to the spec of the pod. `cells`: it runs programs of answers, each in a cell. `runtime`: the ClusterRLHFRuntime that overrides the site.
    """

    command: tuple[str, ...]
    env: Mapping[str, str] = {}
    secret_env: Mapping[str, str] = {}
    termination_grace_period_seconds: float = 30.0
    warm: bool = False
    probe: bool = True
    interpreter: str = ""
    account: str = ""
    peers: str = ""
    node_name: str = ""
    cells: bool = False
    template: Mapping[str, Any] = {}
    runtime: Mapping[str, Any] = {}


class PodStatus(msgspec.Struct, frozen=True, rename="camel"):
    """What the runner knows. phase: Pending | Running | Succeeded | Failed; times RFC 3339.

    `pid_start`: the kernel's start time of `pid` (clock ticks since boot), so a number that was
    used again is not mistaken for the pod. `signal`: what killed it; neither signal nor
    `exit_code` is known of a process whose parents are gone. `message`: last lines of the log.
    `disrupted`: why the pod, which runs, is about to be taken away (Kubernetes' DisruptionTarget).
    """

    phase: str = "Pending"
    ready: bool = False
    reason: str = ""
    message: str = ""
    pid: int = 0
    pid_start: int = 0
    health_port: int = 0
    started_at: str = ""
    finished_at: str = ""
    exit_code: int | None = None
    signal: int | None = None
    disrupted: str = ""


class PodView(msgspec.Struct, frozen=True):
    """A pod object with its parts typed."""

    resource: Resource
    spec: PodSpec
    status: PodStatus

    @property
    def name(self) -> str:
        """Of the pod."""
        return self.resource.metadata.name

    @property
    def uid(self) -> str:
        """Of the pod object."""
        return self.resource.metadata.uid

    @property
    def finished(self) -> bool:
        """The process is over."""
        return self.status.phase in ("Succeeded", "Failed")

    @property
    def leaving(self) -> bool:
        """Somebody deleted the object."""
        return self.resource.metadata.deletion_timestamp is not None

    @property
    def alive(self) -> bool:
        """Neither over nor about to be."""
        return not self.finished and not self.leaving

    @property
    def grace(self) -> float:
        """Seconds from SIGTERM to SIGKILL, once it is deleted."""
        given = self.resource.metadata.deletion_grace_period_seconds
        return self.spec.termination_grace_period_seconds if given is None else given

    def leaving_for(self, now: float) -> float:
        """Seconds since the deletion; 0 while there is none."""
        since = self.resource.metadata.deletion_timestamp
        return max(0.0, now - unix_time(since)) if since else 0.0

    def label(self, name: str) -> str:
        """Value of a label, or empty."""
        return self.resource.metadata.labels.get(name, "")


def view(resource: Resource) -> PodView:
    """Type the parts of a Pod object; raises msgspec.ValidationError where it is not one of ours."""
    spec = msgspec.convert(resource.spec, PodSpec)
    return PodView(resource, spec, msgspec.convert(resource.status, PodStatus))
