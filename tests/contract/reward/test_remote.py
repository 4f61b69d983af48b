"""Scorers over HTTP against a real server: away, busy, wrong, hostile."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx
import pytest

from ebbtide.rewards.outcomes import Answer, Broken, Outcome, Unusable, Worth
from ebbtide.spec import HttpReward, JudgeReward
from services.reward.core import Key
from services.reward.engine.doors import networks
from services.reward.engine.remote import Remote, connected

LOCAL = networks("127.0.0.0/8")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    command = [sys.executable, "-S", "-m", "ebbtide.testing.scoring_server"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.kill()


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with connected(allowed=LOCAL, connections=8) as client:
        yield client


def answer(response: str) -> Answer:
    return Answer("Q", response, b'{"answer": "gold"}', "task")


def component(server: str, **changes: Any) -> HttpReward:
    return HttpReward(type="http", name="h", uri=f"{server}/score", **changes)


def judge(server: str, **changes: Any) -> JudgeReward:
    fields = {"template": "{prompt} {reference} A: {response}", **changes}
    return JudgeReward(type="llm-judge", name="j", uri=f"{server}/v1", model="m", **fields)


async def told(http: httpx.AsyncClient, component: Any, response: str, **keys: Key) -> Outcome:
    return await Remote(component, http=http, keys=keys).score(answer(response))


async def test_a_server_scores_many_answers_at_once(server: str, http: httpx.AsyncClient) -> None:
    remote = Remote(component(server), http=http, keys={})
    found = await asyncio.gather(*(remote.score(answer(str(n))) for n in range(50)))
    assert found == [Worth(float(n)) for n in range(50)]


@pytest.mark.parametrize(
    ("response", "outcome"),
    [
        ("busy 2", Worth(1.0)),
        ("wrong", Unusable("{server}/score replied 422")),
        ("denied", Broken("Http401", "{server}/score replied 401")),
        ("redirect", Broken("Http307", "{server}/score replied 307")),
        ("broken", Broken("Http500", "{server}/score replied 500")),
        ("flood", Broken("BadReply", "{server}/score replied more than 1 MiB")),
    ],
)
async def test_each_reply_has_its_meaning(
    server: str, http: httpx.AsyncClient, response: str, outcome: Any
) -> None:
    found = await told(http, component(server, tries=3), response)
    assert str(found) == str(outcome).replace("{server}", server)


async def test_only_what_may_pass_is_tried_again(server: str, http: httpx.AsyncClient) -> None:
    for response in ("broken 1", "lost 1", "redirect 1"):
        await told(http, component(server, tries=2), response)
    seen = (await http.get(f"{server}/seen")).json()
    words = [request["body"].get("response") for request in seen]
    assert [words.count(w) for w in ("broken 1", "lost 1", "redirect 1")] == [2, 1, 1]
    assert "/elsewhere" not in {request["path"] for request in seen}


async def test_a_score_that_is_no_number_is_the_servers_fault(
    server: str, http: httpx.AsyncClient
) -> None:
    found = await told(http, component(server), "text")
    assert isinstance(found, Broken)
    assert found.error_class == "BadReply"


async def test_a_deadline_ends_all_tries(server: str, http: httpx.AsyncClient) -> None:
    found = await told(http, component(server, timeout_seconds=0.2), "slow 3")
    assert found == Broken("Timeout", "no reply in 0.2 s")
    busy = await told(http, component(server, timeout_seconds=0.3, tries=100), "busy 1000")
    assert busy == Broken("Http429", f"{server}/score replied 429")


async def test_a_server_that_is_away_is_infrastructure(http: httpx.AsyncClient) -> None:
    found = await told(http, component("http://127.0.0.1:9", tries=1), "1")
    assert isinstance(found, Broken)
    assert found.error_class == "ConnectError"


async def test_an_address_that_is_not_public_is_never_called(server: str) -> None:
    async with connected(allowed=(), connections=1) as http:
        found = await told(http, component(server), "1")
    assert found == Broken("Forbidden", "127.0.0.1 is at 127.0.0.1, which is not public")


async def test_a_key_goes_to_its_origin_and_into_no_word(
    server: str, http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    key = Key(key="sk-secret", origin=server)
    found = await told(http, component(server, key="k", tries=1), "broken 7", k=key)
    seen = (await http.get(f"{server}/seen")).json()
    assert seen[-1]["headers"]["Authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in f"{caplog.text}{found}{key!r}"


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("It is good.\nScore: 7.5", Worth(0.75)),
        ("score: 0", Worth(0.0)),
        ("good", Unusable("the judge gave no scores")),
        ("Score: 3\nScore: 9", Unusable("the judge gave 2 scores")),
        ("Score: 11", Unusable("the judge's score 11 is not on its scale")),
    ],
)
async def test_a_judge_gives_exactly_one_score_on_its_scale(
    server: str, http: httpx.AsyncClient, text: str, outcome: Outcome
) -> None:
    assert await told(http, judge(server), text) == outcome


async def test_a_judge_is_asked_without_chance(server: str, http: httpx.AsyncClient) -> None:
    await told(http, judge(server), "{prompt}")
    seen = (await http.get(f"{server}/seen")).json()[-1]
    assert (seen["path"], seen["body"]["temperature"]) == ("/v1/chat/completions", 0)
    assert seen["body"]["messages"] == [{"role": "user", "content": "Q gold A: {prompt}"}]
    assert json.loads(json.dumps(seen["body"]["model"])) == "m"


@pytest.mark.parametrize("host", ["xn--", "[::1]x", f"{'a' * 70}.local"])
async def test_an_address_that_is_none_is_told_and_ends_no_scorer(
    host: str, http: httpx.AsyncClient
) -> None:
    # Built past the job's check, which does not know every rule of names.
    wrong = HttpReward.model_construct(
        type="http", name="h", uri=f"http://{host}/", key=None, timeout_seconds=5.0, tries=2
    )
    found = await told(http, wrong, "1")
    assert isinstance(found, Broken)
    assert found.error_class == "BadAddress"
