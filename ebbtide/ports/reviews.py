"""Who shows a token, what they may do to objects, and what would come of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import msgspec


class Person(msgspec.Struct, frozen=True):
    """Somebody whom the API server knows."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()


class Ask(msgspec.Struct, frozen=True):
    """One thing that somebody wants to do; `name` empty: to the collection."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str = ""


class Reviews(Protocol):
    """Raises Temporary while nobody answers."""

    async def who(self, token: str) -> Person | None:
        """Whose token it is; None if it is nobody's."""
        ...

    async def may(self, person: Person, ask: Ask) -> bool:
        """Whether they may do it."""
        ...


class Trials(Protocol):
    """Tries things without doing them; raises Temporary while nobody answers."""

    async def pod(self, namespace: str, body: Mapping[str, Any]) -> None:
        """Raise Refused, whose `field` is a pointer into `body`, where the pod would not be made."""
        ...
