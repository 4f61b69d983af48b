"""The one word that says how a job is, computed from its conditions, never stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ebbtide import labels
from ebbtide.ports import Resource

STATES = (
    "Pending",
    "Starting",
    "Running",
    "Draining",
    "Suspended",
    "Complete",
    "Failed",
    "Cancelled",
)
TERMINAL = frozenset({"Complete", "Failed", "Cancelled"})

CANCEL = labels.CANCEL
"""Annotation whose presence asks the operator to end the job."""

# Sticky terminal conditions first, then what the job is doing, then how far it came.
_ORDER = (
    ("Complete", "Complete"),
    ("Failed", "Failed"),
    ("Suspended", "Suspended"),
    ("Draining", "Draining"),
    ("Running", "Running"),
    ("Initialized", "Starting"),
    ("Provisioned", "Starting"),
    ("Accepted", "Starting"),
)


class State(msgspec.Struct, frozen=True):
    """State with the reason and message of the condition that decides it."""

    name: str
    reason: str = ""
    message: str = ""

    @property
    def terminal(self) -> bool:
        """Nothing more will happen to the job."""
        return self.name in TERMINAL


def conditions(resource: Resource) -> list[Mapping[str, Any]]:
    """The status conditions; tolerant of a status that nobody has written yet."""
    found = resource.status.get("conditions", ())
    return [item for item in found if isinstance(item, Mapping)]


def state_of(resource: Resource) -> State:
    """State of a job object."""
    true = {item["type"]: item for item in conditions(resource) if item.get("status") == "True"}
    for kind, name in _ORDER:
        if kind in true:
            return _named(name, true[kind])
    for item in conditions(resource):
        if item.get("type") == "Accepted" and item.get("status") == "False":
            return _named("Pending", item)
    return State("Pending")


def _named(name: str, condition: Mapping[str, Any]) -> State:
    reason = str(condition.get("reason", ""))
    cancelled = name in ("Complete", "Failed") and reason == "Cancelled"
    return State("Cancelled" if cancelled else name, reason, str(condition.get("message", "")))
