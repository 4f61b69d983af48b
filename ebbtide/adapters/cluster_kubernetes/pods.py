"""What a pod of the API says in the terms of a Pod object here (pure).

Only the few fields that decide anything are decoded: a pod that takes 20 KB of JSON is kept in
about one. The spec and status that come out are those of `ebbtide_operator.podspec`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ebbtide.objects import rfc3339, unix_time
from ebbtide.ports import Meta, Resource

MAIN = "main"
"""Name of the container that is the process."""
_OVER = ("Succeeded", "Failed")
_CANNOT_START = frozenset({"ContainerCannotRun", "StartError"})
_PLAIN = frozenset({"Error", "Completed"})
_SIGNAL_BASE = 128


class _Struct(msgspec.Struct, frozen=True, rename="camel"):
    """Base: camelCase outside."""


class _Taint(_Struct, frozen=True):
    key: str = ""
    effect: str = ""


class _NodeSpec(_Struct, frozen=True):
    taints: tuple[_Taint, ...] = ()


class ApiNode(_Struct, frozen=True):
    """The part of a node that is read."""

    metadata: Meta
    spec: _NodeSpec = _NodeSpec()


def read_node(node: ApiNode) -> Resource:
    """A node: its name and what keeps pods from it. Its labels are many and nobody reads them."""
    meta = msgspec.structs.replace(node.metadata, labels={}, annotations={})
    taints = [one.key for one in node.spec.taints if one.effect in ("NoSchedule", "NoExecute")]
    return Resource("v1", "Node", meta, spec={"taints": taints})


class _Container(_Struct, frozen=True):
    name: str = ""
    command: tuple[str, ...] = ()


class _Spec(_Struct, frozen=True):
    containers: tuple[_Container, ...] = ()
    node_name: str = ""
    termination_grace_period_seconds: float = 30.0


class _Waiting(_Struct, frozen=True):
    reason: str = ""
    message: str = ""


class _Running(_Struct, frozen=True):
    started_at: str = ""


class _Terminated(_Struct, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: str | None = ""
    finished_at: str | None = ""


class _State(_Struct, frozen=True):
    waiting: _Waiting | None = None
    running: _Running | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(_Struct, frozen=True):
    name: str = ""
    state: _State = _State()


class _Condition(_Struct, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = ""


class _Status(_Struct, frozen=True):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    start_time: str | None = None
    conditions: tuple[_Condition, ...] = ()
    container_statuses: tuple[_ContainerStatus, ...] = ()


class ApiPod(_Struct, frozen=True):
    """The part of a pod that is read."""

    metadata: Meta
    spec: _Spec = _Spec()
    status: _Status = _Status()


def read_pod(pod: ApiPod) -> Resource:
    """The Pod object; times of what is not known are empty."""
    main = next((c for c in pod.spec.containers if c.name == MAIN), _Container())
    spec = {
        "command": list(main.command),
        "terminationGracePeriodSeconds": pod.spec.termination_grace_period_seconds,
        "nodeName": pod.spec.node_name,
    }
    return Resource("v1", "Pod", _meta(pod.metadata), spec=spec, status=_status(pod))


def _meta(meta: Meta) -> Meta:
    """The API stamps a deletion with the time at which the pod must be gone: say when it came."""
    if meta.deletion_timestamp is None:
        return meta
    asked = unix_time(meta.deletion_timestamp) - (meta.deletion_grace_period_seconds or 0.0)
    return msgspec.structs.replace(meta, deletion_timestamp=rfc3339(asked))


def _status(pod: ApiPod) -> dict[str, Any]:
    state = _main_state(pod.status)
    if pod.status.phase in _OVER or _given_up(pod, state):
        return _ended(pod, state)
    started = state.running.started_at if state.running else ""
    reason, message = _waits_for(pod.status, state)
    return {
        "phase": pod.status.phase or "Pending",
        "ready": pod.status.phase == "Running" and _holds(pod.status, "Ready"),
        "reason": reason,
        "message": message,
        "startedAt": started,
        "disrupted": _reason_of(pod.status, "DisruptionTarget"),
    }


def _given_up(pod: ApiPod, state: _State) -> bool:
    """Deleted by force while it ran: no kubelet will ever tell how it ended."""
    meta = pod.metadata
    forced = meta.deletion_timestamp is not None and not meta.deletion_grace_period_seconds
    return forced and (state.running is not None or state.terminated is not None)


def _ended(pod: ApiPod, state: _State) -> dict[str, Any]:
    status, end = pod.status, state.terminated or _Terminated(exit_code=-1)
    started = end.started_at or (state.running.started_at if state.running else "")
    code, signal = _how(end) if state.terminated else (None, None)
    return {
        "phase": status.phase if status.phase in _OVER else "Failed",
        "ready": False,
        "reason": _why(status, end) or ("" if state.terminated else "Lost"),
        "message": end.message or status.message,
        "startedAt": started or status.start_time or "",
        "finishedAt": end.finished_at or _last_seen(pod),
        "exitCode": code,
        "signal": signal,
    }


def _how(end: _Terminated) -> tuple[int | None, int | None]:
    """Exit code or signal. The kernel's kill for memory counts as the process's own exit."""
    if end.exit_code > _SIGNAL_BASE and end.reason != "OOMKilled":
        return None, end.exit_code - _SIGNAL_BASE
    return end.exit_code, None


def _why(status: _Status, end: _Terminated) -> str:
    """What is known beyond the exit code; a disruption explains every other reason."""
    if end.reason in _CANNOT_START:
        return "CannotStart"
    if status.reason:
        return status.reason
    if _holds(status, "DisruptionTarget"):
        return "Disrupted"
    return "" if end.reason in _PLAIN else end.reason


def _last_seen(pod: ApiPod) -> str:
    """When a pod that no kubelet ended was last known to run."""
    moved = [c.last_transition_time for c in pod.status.conditions if c.last_transition_time]
    gone = pod.metadata.deletion_timestamp
    return gone or max(moved, default="") or pod.status.start_time or ""


def _waits_for(status: _Status, state: _State) -> tuple[str, str]:
    if state.waiting:
        return state.waiting.reason, state.waiting.message
    for condition in status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return condition.reason, condition.message
    return status.reason, status.message


def _main_state(status: _Status) -> _State:
    found = [one.state for one in status.container_statuses if one.name == MAIN]
    return found[0] if found else _State()


def _reason_of(status: _Status, kind: str) -> str:
    found = [c for c in status.conditions if c.type == kind and c.status == "True"]
    return found[0].reason or kind if found else ""


def _holds(status: _Status, kind: str) -> bool:
    return bool(_reason_of(status, kind))
