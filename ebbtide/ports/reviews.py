"""Who shows a token, and what they may do to objects."""

from __future__ import annotations

from typing import Protocol

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
