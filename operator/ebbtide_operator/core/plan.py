"""What a look leads to: writes in an order that is safe to break off anywhere (pure).

The shell performs: usage, job status, pool status, patches, creates, deletes, events. The status
comes first, so a number that names pods is durable before the pods are; an actor's may be later, but
is durable before the actor's object goes. Pods are named by it, so making them again after a crash
is a conflict and not a second pod.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from ebbtide.ports import Resource
from ebbtide.usage import Usage
from ebbtide_operator.podspec import PodView


class Deletion(msgspec.Struct, frozen=True):
    """Delete this very object; `grace` None is a pod's own."""

    target: Resource
    grace: float | None = None


class Patch(msgspec.Struct, frozen=True):
    """Merge `body` into the object, if nobody changed it since."""

    target: Resource
    body: Mapping[str, Any]


class Note(msgspec.Struct, frozen=True):
    """An event for people."""

    reason: str
    message: str
    warning: bool = False


class Actions(msgspec.Struct, frozen=True):
    """Pods to make and to end, and Unix times at which to look again."""

    creates: tuple[Resource, ...] = ()
    deletes: tuple[Deletion, ...] = ()
    wakes: tuple[float, ...] = ()

    def __add__(self, other: Actions) -> Actions:
        return Actions(
            self.creates + other.creates, self.deletes + other.deletes, self.wakes + other.wakes
        )


class Plan(msgspec.Struct, frozen=True):
    """All writes of one pass. `status` and `pool_status` are merge patches; None: no write."""

    usage: tuple[Usage, ...] = ()
    status: Mapping[str, Any] | None = None
    pool_status: Mapping[str, Any] | None = None
    patches: tuple[Patch, ...] = ()
    creates: tuple[Resource, ...] = ()
    deletes: tuple[Deletion, ...] = ()
    events: tuple[Note, ...] = ()
    requeue_after: float | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing but held time is written."""
        writes = (self.patches, self.creates, self.deletes, self.events)
        return self.status is None and self.pool_status is None and not any(writes)


def end(pod: PodView, grace: float | None = None) -> tuple[Deletion, ...]:
    """The deletion of `pod`, or nothing if it is under way and no longer than `grace`."""
    if not pod.leaving or (grace is not None and pod.grace > grace and not pod.finished):
        return (Deletion(pod.resource, grace),)
    return ()
