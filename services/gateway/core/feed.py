"""The events of a job, derived from its object and its step reports; the cursor is the id.

Nothing is stored for it: a cursor says which conditions and how many steps its holder has seen,
so a stream resumes at any gateway, also after a restart. A condition that flips twice between
two looks is seen once: level-triggered, like everything that watches objects.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from ebbtide.ports import Resource
from services.gateway.core import listing
from services.gateway.core.state import State, conditions, state_of


class Seen(msgspec.Struct, frozen=True, array_like=True):
    """Cursor of a feed: hashes of conditions, next step, whether the end was told, job uid.

    `noted`: resource version of the newest Event object that was told.
    """

    uid: str = ""
    conditions: tuple[str, ...] = ()
    step: int = 0
    ended: bool = False
    noted: int = 0


def parse(cursor: str | None, uid: str) -> Seen:
    """The cursor, or the beginning; a cursor of an earlier job of that name starts anew."""
    seen = listing.decode(cursor, Seen) if cursor else Seen(uid)
    return seen if seen.uid == uid else Seen(uid)


Told = tuple[dict[str, Any], Seen]
"""An event, and the cursor of one who has seen it."""


def state_events(job: Resource, seen: Seen) -> tuple[list[Told], Seen]:
    """Events of the conditions that changed, in order of time, and the cursor after them."""
    listed = sorted(conditions(job), key=lambda c: str(c.get("lastTransitionTime", "")))
    events: list[Told] = []
    for condition in listed:
        mark = _mark(condition)
        if mark in seen.conditions:
            continue
        kept = _without(seen.conditions, str(condition.get("type", "")))
        seen = msgspec.structs.replace(seen, conditions=(*kept, mark))
        events.append((_state_event(condition, seen), seen))
    return events, seen


def note_events(job: Resource, notes: Sequence[Resource], seen: Seen) -> list[Told]:
    """What the operator noted about the job since, in the order in which it was written."""
    told: list[Told] = []
    for note in sorted(notes, key=_version):
        about = note.spec.get("involvedObject", {})
        if about.get("uid") == job.metadata.uid and _version(note) > seen.noted:
            seen = msgspec.structs.replace(seen, noted=_version(note))
            told.append((_note_event(note, seen), seen))
    return told


def step_event(report: Mapping[str, Any], number: int, seen: Seen) -> Told:
    """Event of one committed step."""
    seen = msgspec.structs.replace(seen, step=number + 1)
    reward = report.get("rewards") or {}
    mean = reward.get("mean")
    words = f"step {number} committed" + ("" if mean is None else f", mean reward {mean:.3f}")
    return _event("step", seen, message=words, data=dict(report)), seen


def progress_event(job: Resource, seen: Seen, state: State | None = None) -> dict[str, Any]:
    """The job as it is now; not kept, so it carries the cursor of what was before it."""
    state = state or state_of(job)
    data = {"state": state.name, "status": dict(job.status)}
    return _event("progress", seen, reason=state.reason, message=state.message, data=data)


def end_event(state: State, seen: Seen) -> Told:
    """The last event of a job."""
    seen = msgspec.structs.replace(seen, ended=True)
    data = {"state": state.name}
    event = _event("end", seen, reason=state.reason, message=state.message, data=data)
    return event, seen


def _state_event(condition: Mapping[str, Any], seen: Seen) -> dict[str, Any]:
    data = {key: condition[key] for key in ("type", "status") if key in condition}
    return _event(
        "state",
        seen,
        time=str(condition.get("lastTransitionTime", "")),
        reason=str(condition.get("reason", "")),
        message=str(condition.get("message", "")),
        data=data,
    )


def _note_event(note: Resource, seen: Seen) -> dict[str, Any]:
    spec = note.spec
    return _event(
        "note",
        seen,
        time=str(spec.get("lastTimestamp", "")),
        reason=str(spec.get("reason", "")),
        message=str(spec.get("message", "")),
        data={"type": spec.get("type", "Normal"), "count": spec.get("count", 1)},
    )


def _version(resource: Resource) -> int:
    return int(resource.metadata.resource_version)


def _event(
    kind: str,
    seen: Seen,
    *,
    time: str = "",
    reason: str = "",
    message: str = "",
    data: Mapping[str, Any],
) -> dict[str, Any]:
    return {
        "id": listing.encode(seen),
        "type": kind,
        "time": time,
        "reason": reason,
        "message": message,
        "data": dict(data),
    }


def _mark(condition: Mapping[str, Any]) -> str:
    """`Type.hash`: short, and the type can be told from it."""
    kind, time = str(condition.get("type", "")), str(condition.get("lastTransitionTime", ""))
    text = f"{condition.get('status')}|{condition.get('reason')}|{time}"
    return f"{kind}.{hashlib.sha256(text.encode()).hexdigest()[:6]}"


def _without(marks: Sequence[str], kind: str) -> list[str]:
    return [mark for mark in marks if not mark.startswith(f"{kind}.")]
