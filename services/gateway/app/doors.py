"""Who is let in, and to what: a file of tokens, or the API server's word."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Protocol

import msgspec

from ebbtide.ports import Ask, Person, Reviews
from ebbtide.spec import GROUP
from ebbtide.tokens import Known, tenant_of
from services.gateway.core.needs import Need


class Caller(msgspec.Struct, frozen=True):
    """Whose request it is: `tenant` is fit for a label, `name` is for people."""

    tenant: str
    name: str
    person: Person = Person()


class Door(Protocol):
    """Knows callers by their bearer token (None: they showed none)."""

    async def caller(self, token: str | None) -> Caller | None: ...

    async def may(self, caller: Caller, need: Need) -> bool: ...


class TokenDoor:
    """Those whose token is in the file may do everything; `known` None: everybody may."""

    def __init__(self, known: Sequence[Known] | None) -> None:
        self._known = known

    async def caller(self, token: str | None) -> Caller | None:
        """The tenant whose token it is."""
        if self._known is None:
            return Caller("everybody", "everybody")
        tenant = None if token is None else tenant_of(token, self._known)
        return None if tenant is None else Caller(tenant, tenant)

    async def may(self, caller: Caller, need: Need) -> bool:
        """Always."""
        del caller, need
        return True


class KubernetesDoor:
    """Those whom the API server knows may do what they may do to RLHFJob objects there."""

    def __init__(self, *, reviews: Reviews, namespace: str) -> None:
        self._reviews, self._namespace = reviews, namespace

    async def caller(self, token: str | None) -> Caller | None:
        """The user whose token it is. Raises Temporary."""
        person = await self._reviews.who(token) if token else None
        if person is None:
            return None
        digest = hashlib.sha256(person.username.encode()).hexdigest()
        return Caller(f"u-{digest[:16]}", person.username, person)

    async def may(self, caller: Caller, need: Need) -> bool:
        """Whether the same could be done by kubectl. Raises Temporary."""
        ask = Ask(need.verb, GROUP, "rlhfjobs", self._namespace, need.name)
        return await self._reviews.may(caller.person, ask)
