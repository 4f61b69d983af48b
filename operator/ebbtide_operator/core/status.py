"""The operator's part of a job's status: what it must remember between two looks (pure).

The planner's part (`ebbtide.status`) is never written here. Times are RFC 3339 in the object.
"""

from __future__ import annotations

from typing import Any

import msgspec

from ebbtide.ports import Resource

FIELDS = frozenset({"progress", "policy", "cost", "prefill"})
"""Status fields that belong to the planner."""


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """A Kubernetes condition; status: True | False | Unknown."""

    type: str
    status: str
    reason: str
    message: str = ""
    last_transition_time: str = ""
    observed_generation: int = 0


class Retry(msgspec.Struct, frozen=True, rename="camel"):
    """Failures of a role in a row, without progress between them.

    `at`: time of the last one; `mark`: the progress then; `refusals`: how many of them were a
    refusal of the configuration.
    """

    count: int = 0
    at: str = ""
    mark: str = ""
    refusals: int = 0


class LastFailure(msgspec.Struct, frozen=True, rename="camel"):
    """Kept after the pod is gone. `message` ends with the last lines of its log."""

    role: str
    pod: str
    attempt: int
    reason: str
    time: str
    exit_code: int | None = None
    signal: int | None = None
    message: str = ""


class RoleStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Pods of one role, counted."""

    name: str
    desired: int = 0
    ready: int = 0
    pending: int = 0
    draining: int = 0
    failed: int = 0


class Own(msgspec.Struct, frozen=True, rename="camel"):
    """All that the operator writes.

    `gang`: held while an attempt's pods are wanted, released once they are to go; `counted`: uids of
    failed pods that are in the counters and not yet deleted; `active_since` is empty while
    suspended. `restart_id`: the restart that was done last. `reason`: of the condition that `phase` shows. `failures` counts the job's own faults, `restarts` all faults.
    """

    observed_generation: int = 0
    phase: str = ""
    reason: str = ""
    conditions: tuple[Condition, ...] = ()
    attempt: int = 0
    gang: str = "released"
    planner_serial: int = 0
    restart_id: str = ""
    next_reward: int = 0
    next_prefill: int = 0
    failures: int = 0
    restarts: int = 0
    retries: dict[str, Retry] = {}
    counted: tuple[str, ...] = ()
    queued_time: str = ""
    start_time: str = ""
    placed_time: str = ""
    running_time: str = ""
    completion_time: str = ""
    active_since: str = ""
    active_seconds: float = 0.0
    roles: tuple[RoleStatus, ...] = ()
    last_failure: LastFailure | None = None

    def condition(self, kind: str) -> Condition | None:
        """The condition of that type, if it was ever set."""
        return next((c for c in self.conditions if c.type == kind), None)

    def holds(self, kind: str) -> bool:
        """Whether the condition is True."""
        found = self.condition(kind)
        return found is not None and found.status == "True"

    @property
    def ended(self) -> bool:
        """Complete or Failed: sticky."""
        return self.holds("Complete") or self.holds("Failed")

    @property
    def stopped_for(self) -> str:
        """Condition that ended the job, or empty."""
        return next((kind for kind in ("Complete", "Failed") if self.holds(kind)), "")


def read_own(job: Resource) -> Own:
    """The operator's status of `job`; raises msgspec.ValidationError if others corrupted it."""
    return msgspec.convert({k: v for k, v in job.status.items() if k not in FIELDS}, Own)


def own_patch(old: Own, new: Own) -> dict[str, Any] | None:
    """Merge patch that turns `old` into `new`, or None where they are equal."""
    before, after = msgspec.to_builtins(old), msgspec.to_builtins(new)
    changed = {name: value for name, value in after.items() if before.get(name) != value}
    return changed or None


class PoolStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Status of a DecodePool. `next_index`: no actor name is used twice."""

    observed_generation: int = 0
    replicas: int = 0
    ready_replicas: int = 0
    pending_replicas: int = 0
    draining_replicas: int = 0
    desired_replicas: int = 0
    next_index: int = 0
    selector: str = ""


def read_pool(pool: Resource | None) -> PoolStatus:
    """Status of `pool`, the defaults where there is none yet."""
    return msgspec.convert(pool.status if pool else {}, PoolStatus)
