"""Who shows a token, and what they may do: asked of the API server, so that one policy holds.

Tokens are those that the API server itself accepts: service accounts', and OIDC tokens where it is
configured for an issuer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar

import msgspec

from ebbtide.adapters.cluster_kubernetes.api import Api
from ebbtide.ports import Ask, Clock, Person

T = TypeVar("T")
TOKEN_SECONDS = 30.0
"""A token is asked for again after so long: one that was withdrawn is accepted no longer."""
RIGHT_SECONDS = 10.0
_KEPT = 4096


class _Token(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: Person = Person()
    error: str = ""


class _Right(msgspec.Struct, frozen=True):
    allowed: bool = False


class _TokenReview(msgspec.Struct, frozen=True):
    status: _Token = _Token()


class _RightReview(msgspec.Struct, frozen=True):
    status: _Right = _Right()


class ApiReviews:
    """Answers of the API server behind `api`, remembered for some seconds.

    `audience`: tokens must be meant for it; empty: for the API server.
    """

    def __init__(self, *, api: Api, clock: Clock, audience: str = "") -> None:
        self._api, self._audience = api, audience
        self._people: _Memory[Person | None] = _Memory(clock.now, TOKEN_SECONDS)
        self._rights: _Memory[bool] = _Memory(clock.now, RIGHT_SECONDS)

    async def who(self, token: str) -> Person | None:
        """Whose token it is; None if it is nobody's. Raises Temporary."""
        key = hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
        known = self._people.get(key)
        if known is not None:
            return known[0]
        spec: dict[str, Any] = {"token": token}
        if self._audience:
            spec["audiences"] = [self._audience]
        answer = await self._review("authentication.k8s.io", "TokenReview", spec)
        found = msgspec.json.decode(answer, type=_TokenReview).status
        return self._people.put(key, found.user if found.authenticated else None)

    async def may(self, person: Person, ask: Ask) -> bool:
        """Whether they may do it. Raises Temporary."""
        known = self._rights.get((person, ask))
        if known is not None:
            return known[0]
        attributes = {name: value for name, value in msgspec.to_builtins(ask).items() if value}
        spec = {
            "user": person.username,
            "uid": person.uid,
            "groups": list(person.groups),
            "resourceAttributes": attributes,
        }
        answer = await self._review("authorization.k8s.io", "SubjectAccessReview", spec)
        allowed = msgspec.json.decode(answer, type=_RightReview).status.allowed
        return self._rights.put((person, ask), allowed)

    async def _review(self, group: str, kind: str, spec: dict[str, Any]) -> bytes:
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        path = f"/apis/{group}/v1/{kind.lower()}s"
        return await self._api.call("POST", path, what=kind, body=body)


class _Memory(Generic[T]):
    """The last answers, each for `seconds`."""

    def __init__(self, now: Callable[[], float], seconds: float) -> None:
        self._now, self._seconds = now, seconds
        self._kept: dict[Hashable, tuple[float, T]] = {}

    def get(self, key: Hashable) -> tuple[T] | None:
        """The answer in a tuple, since None may be one."""
        until, answer = self._kept.get(key, (float("-inf"), None))
        return None if until < self._now() else (answer,)  # type: ignore[return-value]

    def put(self, key: Hashable, answer: T) -> T:
        """Keep it, and give it back."""
        self._kept.pop(key, None)
        self._kept[key] = (self._now() + self._seconds, answer)
        while len(self._kept) > _KEPT:
            self._kept.pop(next(iter(self._kept)))
        return answer
