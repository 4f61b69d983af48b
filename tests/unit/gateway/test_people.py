"""Who is let in on Kubernetes: keys by hash, an issuer's tokens, the API server's word."""

from __future__ import annotations

import json
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from ebbtide import tokens
from ebbtide.adapters.oidc import AGAIN_SECONDS, KEYS_SECONDS, OidcIssuer
from ebbtide.errors import Refused, Temporary
from ebbtide.ports import Ask, Person
from services.gateway.app.people import People
from services.gateway.app.server import _issuer
from services.gateway.settings import GatewaySettings
from tests.worlds.gateway import QuickClock

URL = "https://issuer.test"


class Far:
    """An issuer with one key; `asked` counts how often its keys were had."""

    def __init__(self) -> None:
        self.clock, self.asked, self.answers = QuickClock(), 0, True
        self.name, self.key = "k1", ec.generate_private_key(ec.SECP256R1())

    def turn(self, name: str) -> None:
        self.name, self.key = name, ec.generate_private_key(ec.SECP256R1())

    def answer(self, request: httpx.Request) -> httpx.Response:
        if not self.answers:
            return httpx.Response(503)
        if request.url.path.endswith("openid-configuration"):
            return httpx.Response(200, json={"jwks_uri": f"{URL}/keys"})
        self.asked += 1
        public = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(self.key.public_key()))
        return httpx.Response(200, json={"keys": [public | {"kid": self.name, "alg": "ES256"}]})

    def issuer(self) -> OidcIssuer:
        http = httpx.AsyncClient(transport=httpx.MockTransport(self.answer))
        return OidcIssuer(url=URL, audience="ebbtide", http=http, clock=self.clock)

    def token(self, **changes: Any) -> str:
        times = {"iat": 1.0, "exp": 4e9}
        claims = {"iss": URL, "aud": "ebbtide", "sub": "anne", **times, **changes}
        claims = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(claims, self.key, algorithm="ES256", headers={"kid": self.name})


async def test_a_token_of_the_issuer_is_somebodys_with_a_prefix() -> None:
    far = Far()
    person = await far.issuer().who(far.token(groups=["team", 7]))
    assert person == Person("oidc:anne", groups=("oidc:team", "system:authenticated"))


@pytest.mark.parametrize(
    "wrong",
    [{"aud": "other"}, {"iss": "https://other"}, {"exp": 2.0}, {"sub": None}, {"exp": None}],
    ids=str,
)
async def test_a_claim_that_does_not_hold_makes_it_nobodys(wrong: dict[str, Any]) -> None:
    far = Far()
    assert await far.issuer().who(far.token(**wrong)) is None


async def test_the_algorithm_is_not_the_tokens_to_choose() -> None:
    far = Far()
    claims = jwt.decode(far.token(), options={"verify_signature": False})
    for algorithm, key in (("none", None), ("HS256", "x" * 32)):
        forged = jwt.encode(claims, key, algorithm=algorithm, headers={"kid": "k1"})  # type: ignore[arg-type]
        assert await far.issuer().who(forged) is None


async def test_a_token_signed_by_another_key_is_nobodys() -> None:
    far, other = Far(), Far()
    assert await far.issuer().who(other.token()) is None


async def test_keys_that_turn_are_found_and_not_asked_for_by_every_stranger() -> None:
    far = Far()
    issuer = far.issuer()
    assert await issuer.who(far.token())
    far.turn("k2")
    assert await issuer.who(far.token()) is None
    assert await issuer.who(far.token()) is None
    far.clock.seconds += AGAIN_SECONDS + 1
    assert await issuer.who(far.token())
    assert far.asked == 2
    far.clock.seconds += KEYS_SECONDS + 1
    assert await issuer.who(far.token())
    assert far.asked == 3


async def test_an_issuer_that_does_not_answer_makes_nobody_a_stranger() -> None:
    far = Far()
    far.answers = False
    with pytest.raises(Temporary):
        await far.issuer().who(far.token())


class ApiServer:
    """Knows one token of its own, and says what was asked of it."""

    def __init__(self) -> None:
        self.tokens: list[str] = []

    async def who(self, token: str) -> Person | None:
        self.tokens.append(token)
        return Person("system:serviceaccount:a:b") if token == "theirs" else None

    async def may(self, person: Person, ask: Ask) -> bool:
        return (person.username, ask.verb) == ("ebbtide:team-a", "create")


async def test_each_kind_of_token_is_asked_about_in_one_place() -> None:
    far, server, key = Far(), ApiServer(), tokens.new_token()
    known = tokens.parse(tokens.line("team-a", key))
    people = People(reviews=server, keys=known, issuer=far.issuer())
    found = [await people.who(t) for t in (key, "ebt_guess", far.token(), "theirs", "a.b.c")]
    names = [person.username if person else None for person in found]
    assert names == ["ebbtide:team-a", None, "oidc:anne", "system:serviceaccount:a:b", None]
    assert server.tokens == ["theirs", "a.b.c"]


async def test_what_a_key_may_do_is_the_api_servers_to_say() -> None:
    people = People(reviews=ApiServer())
    ask = Ask("create", "g", "rlhfjobs", "n")
    assert await people.may(Person("ebbtide:team-a"), ask)
    assert not await people.may(Person("oidc:team-a"), ask)


@pytest.mark.parametrize(
    ("issuer", "audience"), [("http://issuer.test", "a"), ("https://issuer.test", "")]
)
async def test_an_issuer_without_https_or_audience_is_refused(issuer: str, audience: str) -> None:
    settings = GatewaySettings(blobs_url="memory:///", oidc_issuer=issuer, oidc_audience=audience)
    async with httpx.AsyncClient() as http:
        with pytest.raises(Refused, match="https issuer"):
            _issuer(settings, http)
