"""What cancel, suspend, resume and delete do to a job object, and when they may not."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ebbtide.ports import Resource
from services.gateway.core.problems import Problem
from services.gateway.core.state import CANCEL, state_of

VERBS = ("cancel", "suspend", "resume")


def patch_for(verb: str, job: Resource) -> Mapping[str, Any] | None:
    """The merge patch that asks for `verb`, or None when it was asked for before.

    Raises a conflict where the job has ended in another way.
    """
    if verb == "cancel":
        return _cancel(job)
    wanted = verb == "suspend"
    state = state_of(job)
    if state.terminal or CANCEL in job.metadata.annotations:
        raise Problem("conflict", f"The job is {state.name}: it cannot {verb} any more.")
    if bool(job.spec.get("suspend", False)) == wanted:
        return None
    return {"spec": {"suspend": wanted}}


def _cancel(job: Resource) -> Mapping[str, Any] | None:
    if CANCEL in job.metadata.annotations:
        return None
    state = state_of(job)
    if state.terminal:
        raise Problem("conflict", f"The job is {state.name}: there is nothing to cancel.")
    return {"metadata": {"annotations": {CANCEL: "true"}}}


def check_delete(job: Resource, *, force: bool) -> None:
    """Raises a conflict for a job that has not ended, unless it is forced."""
    state = state_of(job)
    if not state.terminal and not force:
        detail = f"The job is {state.name}: cancel it first, or delete it by force."
        raise Problem("conflict", detail)
