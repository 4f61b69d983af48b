"""Addresses, keys and parts of scorers over HTTP, without a network."""

from __future__ import annotations

import ipaddress
from typing import Any

import httpx
import pytest
from pydantic import ValidationError

from ebbtide.errors import Refused
from ebbtide.rewards.outcomes import Answer, Judged, Outcome, Worth
from ebbtide.spec import CodeReward, HttpReward, JudgeReward, RewardSpec, RuleReward
from services.reward.app.panel import Panel, local_part
from services.reward.core import Key, TimedOut, key_of
from services.reward.engine.doors import Door, Forbidden, networks, permitted
from services.reward.engine.remote import keys_of

HTTP = HttpReward(type="http", name="h", uri="https://judge.example/score", key="k")
RULE = RuleReward(type="exact", name="r")


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f::1", True),
        ("127.0.0.1", False),
        ("10.0.0.1", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("0.0.0.0", False),  # noqa: S104 - a target here
        ("224.0.0.1", False),
        ("::1", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
    ],
)
def test_only_public_addresses_are_permitted(address: str, public: bool) -> None:
    assert permitted(ipaddress.ip_address(address), ()) is public


def test_the_administrator_permits_networks() -> None:
    allowed = networks("10.1.0.0/16, fd00::/8")
    found = [
        permitted(ipaddress.ip_address(a), allowed) for a in ("10.1.2.3", "10.2.0.1", "fd00::1")
    ]
    assert found == [True, False, True]
    with pytest.raises(Refused, match="not a network"):
        networks("home")


async def called(addresses: list[str], **more: Any) -> httpx.Request:
    seen: list[httpx.Request] = []

    def reply(request: httpx.Request) -> httpx.Response:
        seen.append(request)
        return httpx.Response(200)

    async def resolve(host: str, port: int) -> list[str]:
        return addresses

    door = Door(httpx.MockTransport(reply), allowed=(), resolve=resolve)
    async with httpx.AsyncClient(transport=door) as http:
        await http.get("https://judge.example/score", **more)
    return seen[0]


async def test_the_checked_address_is_called_under_the_name_that_was_asked() -> None:
    request = await called(["93.184.215.14"])
    assert (request.url.host, request.headers["Host"]) == ("93.184.215.14", "judge.example")
    assert request.extensions["sni_hostname"] == "judge.example"


async def test_one_private_address_among_public_ones_closes_the_door() -> None:
    with pytest.raises(Forbidden, match=r"judge\.example is at 10\.0\.0\.1"):
        await called(["93.184.215.14", "10.0.0.1"])


@pytest.mark.parametrize("origin", ["https://judge.example", "https://judge.example:443/any"])
def test_a_key_is_given_to_its_own_origin(origin: str) -> None:
    assert key_of(HTTP, {"k": Key(key="s", origin=origin)}) == Key(key="s", origin=origin)


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"k": Key(key="s", origin="https://other.example")},
        {"k": Key(key="s", origin="http://judge.example")},
        {"k": Key(key="s", origin="https://judge.example:8443")},
    ],
)
def test_a_key_for_elsewhere_is_refused(keys: dict[str, Key]) -> None:
    with pytest.raises(Refused, match="key"):
        key_of(HTTP, keys)


def test_keys_that_cannot_be_read_are_not_quoted() -> None:
    with pytest.raises(Refused) as refusal:
        keys_of('{"k": "sk-secret"}')
    assert "sk-secret" not in str(refusal.value)


async def test_outcomes_come_in_the_jobs_order() -> None:
    class Workers:
        verdict: Any = Judged((Worth(1.0), Worth(3.0)), (0.1, 0.3))

        async def score(self, answer: Answer) -> Any:
            return self.verdict

    async def two(answer: Answer) -> Outcome:
        return Worth(2.0)

    workers: Any = Workers()
    last = RuleReward(type="exact", name="s")
    panel = Panel((RULE, HTTP, last), pool=workers, servers={"h": two})
    verdict: Any = await panel.score(Answer("p", "r", b"{}", "t"))
    assert [o.value for o in verdict.outcomes] == [1.0, 2.0, 3.0]
    workers.verdict = TimedOut()
    assert await panel.score(Answer("p", "r", b"{}", "t")) == TimedOut()


async def test_a_job_with_servers_alone_has_no_workers() -> None:
    async def one(answer: Answer) -> Outcome:
        return Worth(1.0)

    assert local_part(RewardSpec(components=(HTTP,))) is None
    panel = Panel((HTTP,), pool=None, servers={"h": one})
    async with panel.running() as versions:
        verdict: Any = await panel.score(Answer("p", "r", b"{}", "t"))
    assert (versions, verdict.outcomes) == ({}, (Worth(1.0),))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"uri": "ftp://host/x"}, "must be an address"),
        ({"uri": "https://user:secret@host/x"}, "must hold no credentials"),
        ({"uri": "http://judge:80800/x"}, "Port out of range"),
        ({"uri": "http://judge:eighty/x"}, "cannot be read as an address"),
        ({"uri": "http://judge..local/x"}, "is no host"),
    ],
)
def test_an_address_that_cannot_be_called_is_refused(fields: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        HttpReward.model_validate({"type": "http", "name": "h", **fields})


def test_a_judge_must_see_the_answer_and_have_a_scale() -> None:
    base = {"type": "llm-judge", "name": "j", "uri": "https://h/v1", "model": "m"}
    with pytest.raises(ValidationError, match="template needs"):
        JudgeReward.model_validate({**base, "template": "judge!"})
    with pytest.raises(ValidationError, match="low must be below high"):
        JudgeReward.model_validate({**base, "template": "{response}", "low": 10.0})


def test_a_program_must_end_before_its_worker_is_killed() -> None:
    code = CodeReward(type="code", name="c", wall_seconds=20.0)
    with pytest.raises(ValidationError, match="wallSeconds of c must be below timeoutSeconds"):
        RewardSpec(components=(code,), timeout_seconds=10.0)
