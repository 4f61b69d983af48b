"""Who shows a token on Kubernetes: an API key, an issuer's token, or one of the API server's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ebbtide.ports import Ask, Person, Reviews
from ebbtide.tokens import PREFIX, Known, tenant_of

KEYS = "ebbtide:keys"
"""Group of everybody who comes with an API key."""


class Issuer(Protocol):
    """`ebbtide.adapters.oidc.OidcIssuer`."""

    def issued(self, token: str) -> bool: ...
    async def who(self, token: str) -> Person | None: ...


class People:
    """Each kind of token is asked about in one place only; what they may do, of the API server.

    `keys`: API keys by their hash. `issuer`: none where the API server alone knows tokens.
    """

    def __init__(
        self, *, reviews: Reviews, keys: Sequence[Known] = (), issuer: Issuer | None = None
    ) -> None:
        self._reviews, self._keys, self._issuer = reviews, keys, issuer

    async def who(self, token: str) -> Person | None:
        """Whose token it is; None if it is nobody's. Raises Temporary."""
        if token.startswith(PREFIX):
            tenant = tenant_of(token, self._keys)
            groups = (KEYS, "system:authenticated")
            return Person(username=f"ebbtide:{tenant}", groups=groups) if tenant else None
        if self._issuer and self._issuer.issued(token):
            return await self._issuer.who(token)
        return await self._reviews.who(token)

    async def may(self, person: Person, ask: Ask) -> bool:
        """Whether they may do it. Raises Temporary."""
        return await self._reviews.may(person, ask)
