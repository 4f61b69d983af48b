"""Every reason that a condition or an event can have: a closed list (pure).

The text after each is the meaning that docs/job-status.md shows; a test keeps both together.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """Reasons, by the condition that carries them."""

    # Accepted
    SPEC_ACCEPTED = "SpecAccepted"
    SPEC_INVALID = "SpecInvalid"
    NO_RUNTIME = "NoRuntime"
    # Running
    PODS_STARTING = "PodsStarting"
    ROLES_READY = "RolesReady"
    WAITING_FOR_QUOTA = "WaitingForQuota"
    NOT_WANTED = "NotWanted"
    # Suspended
    NOT_SUSPENDED = "NotSuspended"
    SUSPENDING = "Suspending"
    SUSPENDED_BY_USER = "SuspendedByUser"
    RESTART_REQUESTED = "RestartRequested"
    BUDGET_EXCEEDED = "BudgetExceeded"
    # Complete
    NOT_ENDED = "NotEnded"
    ALL_STEPS_DONE = "AllStepsDone"
    # Failed
    CANCELLED = "Cancelled"
    TRAINING_FAILED = "TrainingFailed"
    ROLE_REFUSED = "RoleRefused"
    BACKOFF_LIMIT_EXCEEDED = "BackoffLimitExceeded"
    RESTART_LIMIT_EXCEEDED = "RestartLimitExceeded"
    SCHEDULING_DEADLINE_EXCEEDED = "SchedulingDeadlineExceeded"
    PRE_RUNNING_DEADLINE_EXCEEDED = "PreRunningDeadlineExceeded"
    STALL_DEADLINE_EXCEEDED = "StallDeadlineExceeded"
    ACTIVE_DEADLINE_EXCEEDED = "ActiveDeadlineExceeded"
    # Degraded
    AS_WANTED = "AsWanted"
    PODS_MISSING = "PodsMissing"
    PODS_PENDING = "PodsPending"
    PODS_REFUSED = "PodsRefused"
    RESTARTING = "Restarting"
    OVER_BUDGET = "OverBudget"
    FOREIGN_EDIT = "ForeignEdit"
    # Draining
    NOT_DRAINING = "NotDraining"
    FREEING_PODS = "FreeingPods"
    DELETING = "Deleting"


MEANINGS: dict[Reason, str] = {
    Reason.SPEC_ACCEPTED: "The specification is valid.",
    Reason.SPEC_INVALID: "The specification is not valid; the message names the first fault.",
    Reason.NO_RUNTIME: "The ClusterRLHFRuntime of runtimeRef is not there, or not valid.",
    Reason.PODS_STARTING: "Pods are placed, started or restarted; the message counts them.",
    Reason.ROLES_READY: "The planner, all learner ranks and one pod of each other role are ready.",
    Reason.WAITING_FOR_QUOTA: "Pods wait to be admitted by their queue.",
    Reason.NOT_WANTED: "The job is suspended, over, or not accepted, so nothing runs.",
    Reason.NOT_SUSPENDED: "The job is not suspended.",
    Reason.SUSPENDING: "The planner saves a checkpoint, then every pod is freed.",
    Reason.SUSPENDED_BY_USER: "spec.suspend is set and no pod is left.",
    Reason.RESTART_REQUESTED: "restart.id is new: pods are freed, then the next attempt starts.",
    Reason.BUDGET_EXCEEDED: "The job cost more than budget.maxCost; a higher budget resumes it.",
    Reason.NOT_ENDED: "The job has not ended in this way.",
    Reason.ALL_STEPS_DONE: "The planner reported that the last step is committed.",
    Reason.CANCELLED: "Somebody cancelled the job.",
    Reason.TRAINING_FAILED: "The planner gave the job up; the message is its own.",
    Reason.ROLE_REFUSED: "A role refused its configuration twice; the message is its last log.",
    Reason.BACKOFF_LIMIT_EXCEEDED: "More failures of the job's own than backoffLimit.",
    Reason.RESTART_LIMIT_EXCEEDED: "Too many restarts in a row without any progress.",
    Reason.SCHEDULING_DEADLINE_EXCEEDED: "Pods were not placed in deadlines.schedulingSeconds.",
    Reason.PRE_RUNNING_DEADLINE_EXCEEDED: "No first progress in deadlines.preRunningSeconds.",
    Reason.STALL_DEADLINE_EXCEEDED: "No progress for deadlines.stallSeconds.",
    Reason.ACTIVE_DEADLINE_EXCEEDED: "The job ran for deadlines.activeSeconds.",
    Reason.AS_WANTED: "Every wanted pod is there.",
    Reason.PODS_MISSING: "Fewer pods are ready than must be; the job goes on with the others.",
    Reason.PODS_PENDING: "A pod has waited two minutes for its start; the message says for what.",
    Reason.PODS_REFUSED: "The API server does not let a pod be made; the message is its own.",
    Reason.RESTARTING: "Pods failed since the last progress and are started again.",
    Reason.OVER_BUDGET: "The job cost more than budget.maxCost, and onExceed is Warn.",
    Reason.FOREIGN_EDIT: "Somebody wrote the pool's replicas directly; only the planner and /scale do.",
    Reason.NOT_DRAINING: "Nothing is being freed.",
    Reason.FREEING_PODS: "The pods of a job that is suspended or over are leaving.",
    Reason.DELETING: "The job object is deleted once its pods have left.",
}

EVENTS: dict[str, str] = {
    "AttemptStarted": "A learner gang starts, with a new attempt number.",
    "PlannerStarted": "A planner starts: the attempt's first one, or its successor.",
    "PodFailed": "A pod failed; the message names it and says why.",
    "Resumed": "A suspended job goes on.",
    "Interrupted": "A pod is about to lose its node: it hands over, and another takes its place.",
    "Expired": "The job ended ttlSecondsAfterFinished ago: its object is deleted.",
    "Reclaimed": "Logs or samples of the ended job were removed, as retention says; the message counts them.",
}
"""Reasons of events beside the conditions' own."""
