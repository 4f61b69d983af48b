"""What jobs cost all together, by whom and for what; and what OpenCost says of them (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ebbtide.errors import Refused
from ebbtide.ports import Resource
from services.gateway.core.cost import SLACK, Account
from services.gateway.core.state import state_of
from services.gateway.core.submit import TENANT_LABEL

KEYS = ("tenant", "job", "state")
LABEL = "label:"
"""Before the name of a label that jobs are told apart by."""
CLOSE = 0.05
"""Two bills agree that differ by at most this share of the larger one."""


class Spending(msgspec.Struct, frozen=True):
    """One job and its account."""

    job: Resource
    account: Account

    @property
    def currency(self) -> str:
        """The job's."""
        return str(self.job.spec.get("currency", "USD"))


def check_keys(by: Sequence[str]) -> None:
    """Raise Refused for what jobs cannot be told apart by."""
    for key in by:
        if key not in KEYS and (key == LABEL or not key.startswith(LABEL)):
            words = f"one of {', '.join(KEYS)}, or {LABEL}NAME for a label of the jobs"
            raise Refused(f"by must be {words}, not {key!r}", field="by")


def added_up(spendings: Sequence[Spending], by: Sequence[str]) -> list[dict[str, Any]]:
    """Sums (ebbtide.api.CostGroup) by `by` and by currency, in order of the keys' values."""
    groups: defaultdict[tuple[str, ...], list[Spending]] = defaultdict(list)
    for one in spendings:
        places = (*(_place(one.job, key) for key in by), one.currency)
        groups[places].append(one)
    return [
        {"key": dict(zip(by, places, strict=False)), "currency": places[-1]} | _sums(members)
        for places, members in sorted(groups.items())
    ]


def _place(job: Resource, key: str) -> str:
    """Empty: the job does not say."""
    if key == "job":
        return job.metadata.name
    if key == "state":
        return state_of(job).name
    label = TENANT_LABEL if key == "tenant" else key.removeprefix(LABEL)
    return job.metadata.labels.get(label, "")


def _sums(members: Sequence[Spending]) -> dict[str, Any]:
    unpriced = sum(one.account.unpriced for one in members)
    known = sum(one.account.known for one in members)
    return {
        "jobs": len(members),
        "unpricedJobs": sum(one.account.total is None for one in members),
        "heldSeconds": sum(one.account.held for one in members),
        "unpricedSeconds": unpriced,
        "known": known,
        "total": known if unpriced <= SLACK else None,
    }


def compared(spendings: Sequence[Spending], theirs: Mapping[str, float]) -> dict[str, Any]:
    """Both bills job by job (ebbtide.api.Reconciliation). `theirs`: OpenCost's by job uid.

    A job that OpenCost does not know has None there; of a job of theirs that is not here, only
    the uid is known.
    """
    rows = [
        {
            "job": one.job.metadata.name,
            "uid": one.job.metadata.uid,
            "currency": one.currency,
            "heldSeconds": one.account.held,
            "ours": one.account.total,
            "theirs": theirs.get(one.job.metadata.uid),
            "agree": _agree(one.account.total, theirs.get(one.job.metadata.uid)),
        }
        for one in sorted(spendings, key=lambda one: one.job.metadata.name)
    ]
    known = {one.job.metadata.uid for one in spendings}
    return {"items": rows, "strangers": sorted(uid for uid in theirs if uid not in known)}


def _agree(ours: float | None, theirs: float | None) -> bool | None:
    """None where one of them is not known."""
    if ours is None or theirs is None:
        return None
    return abs(ours - theirs) <= CLOSE * max(ours, theirs)
