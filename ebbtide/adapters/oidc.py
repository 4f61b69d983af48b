"""Whose OIDC token it is, by its issuer's published keys (OpenID Connect Discovery 1.0).

A token is accepted if its signature, its issuer, its audience and its times hold; the algorithms are
pinned here and never taken from the token. Names get a prefix, so nobody becomes by a claim
whom the API server knows by other means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import httpx
import jwt
import msgspec

from ebbtide.errors import Temporary
from ebbtide.ports import Clock, Person

ALGORITHMS = ("RS256", "ES256")
KEYS_SECONDS = 3600.0
"""Keys are asked for again after so long: one that was withdrawn is accepted no longer."""
AGAIN_SECONDS = 30.0
"""A key that nobody knows has the keys asked for again, but no more often than this."""
_LEEWAY_SECONDS = 30.0
_LONGEST = 16_384


class OidcIssuer:
    """Tokens of one issuer. `url`: as tokens name it; `http`: a client that ends its calls in time.

    `audience`: whom tokens must be meant for. `prefix`: put before user and group names.
    """

    def __init__(
        self,
        *,
        url: str,
        audience: str,
        http: httpx.AsyncClient,
        clock: Clock,
        prefix: str = "oidc:",
        algorithms: Sequence[str] = ALGORITHMS,
    ) -> None:
        self._url, self._audience, self._http, self._clock = url, audience, http, clock
        self._prefix, self._algorithms = prefix, list(algorithms)
        self._keys: Mapping[str, jwt.PyJWK] = {}
        self._asked_at = float("-inf")
        self._lock = asyncio.Lock()

    def issued(self, token: str) -> bool:
        """Whether the token says that it is this issuer's; nothing of it is believed yet."""
        if len(token) > _LONGEST:
            return False
        try:
            claims = jwt.decode(token, options={"verify_signature": False})
        except jwt.PyJWTError:
            return False
        return claims.get("iss") == self._url

    async def who(self, token: str) -> Person | None:
        """Whose token it is; None if it is nobody's. Raises Temporary while keys are unknown."""
        try:
            key = await self._key(str(jwt.get_unverified_header(token).get("kid", "")))
            if key is None:
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=self._algorithms,
                audience=self._audience,
                issuer=self._url,
                leeway=_LEEWAY_SECONDS,
                options={"require": ["exp", "iat", "sub", "aud", "iss"]},
            )
        except jwt.PyJWTError:
            return None
        return self._person(claims)

    def _person(self, claims: Mapping[str, Any]) -> Person:
        groups = claims.get("groups", ())
        named = [g for g in groups if isinstance(g, str)] if isinstance(groups, list) else []
        return Person(
            username=f"{self._prefix}{claims['sub']}",
            groups=(*(f"{self._prefix}{name}" for name in named), "system:authenticated"),
        )

    async def _key(self, name: str) -> jwt.PyJWK | None:
        async with self._lock:
            age = self._clock.now() - self._asked_at
            if age > KEYS_SECONDS or (name not in self._keys and age > AGAIN_SECONDS):
                self._keys = await self._fetch()
                self._asked_at = self._clock.now()
        return self._keys.get(name)

    async def _fetch(self) -> dict[str, jwt.PyJWK]:
        """The issuer's keys by name. Raises Temporary."""
        try:
            about = await self._get(f"{self._url.rstrip('/')}/.well-known/openid-configuration")
            found = await self._get(str(about["jwks_uri"]))
            keys = jwt.PyJWKSet.from_dict(found).keys
        except (httpx.HTTPError, msgspec.MsgspecError, KeyError, jwt.PyJWTError) as error:
            raise Temporary(f"the keys of {self._url} cannot be had: {error}") from error
        return {key.key_id: key for key in keys if key.key_id}

    async def _get(self, url: str) -> dict[str, Any]:
        answer = await self._http.get(url)
        answer.raise_for_status()
        return msgspec.json.decode(answer.content, type=dict[str, Any])
