"""The planner's part of a job's status; the operator writes everything else (pure).

The planner merges `Progress`, `PolicyStatus`, `CostStatus` and `PrefillStatus` (camelCase) into
`status.progress`, `policy`, `cost` and `prefill`, at most once a second, and at once for an outcome. An outcome is
what ends a job: the operator sees it and the planner's exit, and makes the terminal condition. A
planner that exits without an outcome has failed or drained, whatever its exit code.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

T = TypeVar("T", bound=msgspec.Struct)


class Progress(msgspec.Struct, frozen=True, rename="camel"):
    """How far the job is. `step`: committed steps, over all attempts.

    `last_progress_time` (RFC 3339): when an outcome of a sample, a learned batch, a checkpoint or
    a commit last came; the operator's stall deadline counts from it. The first one of an attempt
    ends preRunningSeconds. outcome: "" while running | complete | failed; `reason` and `message`
    say why. `warning`: what is odd with the job's data, of which it goes on all the same. `attempt` and `planner_epoch` are the writer's fence: a planner leaves the status alone
    once it shows a higher one.
    """

    step: int = 0
    total_steps: int = 0
    phase: str = ""
    attempt: int = 0
    planner_epoch: int = 0
    last_progress_time: str = ""
    outcome: str = ""
    reason: str = ""
    message: str = ""
    warning: str = ""


class PolicyStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The newest policy that the learner published, and its folder in the blob store."""

    version: int = 0
    digest: str = ""
    attempt: int = 0
    path: str = ""


class PrefillStatus(msgspec.Struct, frozen=True, rename="camel"):
    """With `prefill.mode: auto`: whether the operator is to keep a prefill service, and why."""

    wanted: bool = False
    reason: str = ""


class CostStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Money so far, all roles; None while a price is unknown. `budget` acts on `accrued`."""

    accrued: float | None = None
    currency: str = "USD"
    last_updated_time: str = ""


def read(status: Mapping[str, Any], field: str, kind: type[T]) -> T:
    """`status[field]` as `kind`; the defaults where it is missing or not of that form."""
    try:
        return msgspec.convert(status.get(field, {}), kind)
    except msgspec.ValidationError:
        return kind()
