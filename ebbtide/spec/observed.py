"""What a job's and a pool's status show, as people read it: the schema of the status.

The operator and the planner write these fields from types of their own, which hold the meaning; a
test compares the names. Times are RFC 3339.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from ebbtide.models import Model
from ebbtide.spec.job import Condition

_Time = Annotated[str, Field(max_length=40)]
_Word = Annotated[str, Field(max_length=256)]
_Text = Annotated[str, Field(max_length=32768)]


class RoleCount(Model):
    """Pods of one role, counted."""

    name: str = Field(max_length=63, description="The role.")
    desired: int = Field(0, ge=0, description="Wanted.")
    ready: int = Field(0, ge=0, description="At work.")
    pending: int = Field(0, ge=0, description="Waiting for a node, an image or their start.")
    draining: int = Field(0, ge=0, description="On their way out.")
    failed: int = Field(0, ge=0, description="Failed, and not replaced yet.")


class ProgressStatus(Model):
    """How far the job is; the planner writes it."""

    step: int = Field(0, ge=0, description="Committed steps, over all attempts.")
    total_steps: int = Field(0, ge=0, description="Steps of the whole job.")
    phase: _Word = Field("", description="What the step is doing.")
    attempt: int = Field(0, ge=0, description="Attempt of the planner that wrote this.")
    planner_epoch: int = Field(0, ge=0, description="Epoch of that planner.")
    last_progress_time: _Time = Field("", description="When anything last moved forward.")
    outcome: _Word = Field("", description="Empty while it runs; complete or failed.")
    reason: _Word = Field("", description="Why it failed, in one word.")
    message: _Text = Field("", description="Why, for people.")
    warning: _Text = Field("", description="What is odd with the data; the job goes on.")


class PolicyState(Model):
    """The newest policy that the learner published; the planner writes it."""

    version: int = Field(0, ge=0, description="Version: updates so far.")
    digest: _Word = Field("", description="Digest of its index.")
    attempt: int = Field(0, ge=0, description="Attempt that published it.")
    path: str = Field("", max_length=2048, description="Folder in the blob store.")


class CostState(Model):
    """Money so far; the planner writes it."""

    accrued: float | None = Field(None, description="All roles; unset while a price is unknown.")
    currency: str = Field("USD", max_length=8, description="Unit.")
    last_updated_time: _Time = Field("", description="When it was added up.")


class PrefillState(Model):
    """What the planner wants of the prefill service where the job leaves it to the planner."""

    wanted: bool = Field(description="Whether it is to run.")
    reason: _Text = Field("", description="Why.")


class RetryState(Model):
    """Failures of one role in a row."""

    count: int = Field(0, ge=0, description="How many.")
    at: _Time = Field("", description="When the last one was.")
    mark: _Word = Field("", description="The progress then.")
    refusals: int = Field(0, ge=0, description="How many refused their configuration.")


class FailureState(Model):
    """The last failure; kept after its pod is gone."""

    role: _Word = Field(description="Role.")
    pod: _Word = Field(description="Pod.")
    attempt: int = Field(ge=0, description="Attempt that the pod was started for.")
    reason: _Word = Field(description="Why, in one word.")
    time: _Time = Field(description="When it ended.")
    exit_code: int | None = Field(None, description="Exit code, if it ended by itself.")
    signal: int | None = Field(None, description="Signal, if it was killed.")
    message: _Text = Field("", description="What was said; ends with the last lines of the log.")


class JobStatus(Model):
    """What became of the job so far."""

    observed_generation: int = Field(0, ge=0, description="Generation that the rest judges.")
    phase: _Word = Field("Pending", description="One word, made from the conditions.")
    reason: _Word = Field("", description="Reason of the condition that the phase shows.")
    conditions: tuple[Condition, ...] = Field((), max_length=16, description="One per type.")
    attempt: int = Field(0, ge=0, description="Rises whenever the learner gang starts anew.")
    gang: _Word = Field("released", description="held while an attempt's pods are wanted.")
    planner_serial: int = Field(0, ge=0, description="Planners of this attempt before this one.")
    restart_id: _Word = Field("", description="The restart that was done last.")
    next_reward: int = Field(0, ge=0, description="Number of the next scorer.")
    next_prefill: int = Field(0, ge=0, description="Number of the next prefill service.")
    failures: int = Field(0, ge=0, description="Faults of the job's own: against backoffLimit.")
    restarts: int = Field(0, ge=0, description="All faults.")
    retries: dict[str, RetryState] = Field(
        default_factory=dict, max_length=16, description="Failures in a row, by role."
    )
    counted: tuple[_Word, ...] = Field(
        (), max_length=8192, description="Failed pods that are counted and not gone yet, by uid."
    )
    queued_time: _Time = Field("", description="When the operator first saw the job.")
    start_time: _Time = Field("", description="When this attempt started.")
    placed_time: _Time = Field("", description="When all its pods were placed.")
    running_time: _Time = Field("", description="When its first progress came.")
    completion_time: _Time = Field("", description="When the job ended.")
    active_since: _Time = Field("", description="Empty while suspended.")
    active_seconds: float = Field(0.0, ge=0, description="Active time before that.")
    roles: tuple[RoleCount, ...] = Field((), max_length=8, description="Pods, counted by role.")
    last_failure: FailureState | None = Field(None, description="The last failure.")
    progress: ProgressStatus = Field(
        default_factory=lambda: ProgressStatus(), description="How far the job is."
    )
    policy: PolicyState = Field(
        default_factory=lambda: PolicyState(), description="The newest published policy."
    )
    cost: CostState = Field(default_factory=lambda: CostState(), description="Money so far.")
    prefill: PrefillState | None = Field(
        None, description="Whether prompts have a service of their own; unset: the job says."
    )


class DecodePoolStatus(Model):
    """The pool as it is."""

    observed_generation: int = Field(0, ge=0, description="Generation that the rest judges.")
    replicas: int = Field(0, ge=0, description="Actors that live.")
    ready_replicas: int = Field(0, ge=0, description="Actors at work.")
    pending_replicas: int = Field(0, ge=0, description="Actors that wait for their start.")
    draining_replicas: int = Field(0, ge=0, description="Actors that hand over and leave.")
    desired_replicas: int = Field(0, ge=0, description="Actors that are wanted now.")
    next_index: int = Field(0, ge=0, description="Number of the next actor.")
    selector: str = Field("", max_length=1024, description="Labels of the pool's pods.")
