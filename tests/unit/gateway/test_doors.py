"""Who is let in, and to what."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from prometheus_client import CollectorRegistry

from ebbtide import logs
from ebbtide.errors import Temporary
from ebbtide.ports import Ask, Person
from services.gateway.app import build
from services.gateway.app.doors import KubernetesDoor
from services.gateway.core.needs import Need, need_of
from tests.worlds.gateway import World, a_job, key

ANNE = Person(username="system:serviceaccount:team:anne", uid="1", groups=("team",))


class FakeReviews:
    """Knows one token, and what its owner may do."""

    def __init__(self, *verbs: str, down: bool = False) -> None:
        self.verbs, self.down = verbs, down
        self.asked: list[Ask] = []

    async def who(self, token: str) -> Person | None:
        if self.down:
            raise Temporary("no answer")
        return ANNE if token == "anne" else None

    async def may(self, person: Person, ask: Ask) -> bool:
        assert person == ANNE
        self.asked.append(ask)
        return ask.verb in self.verbs


async def send(
    reviews: FakeReviews, method: str, path: str, *, who: str = "anne", **more: Any
) -> Any:
    world = World()
    await world.put_job("demo")
    app = build(
        settings=world.settings,
        cluster=world.cluster,
        blobs=world.blobs,
        clock=world.clock,
        registry=CollectorRegistry(),
        log=logs.setup("error"),
        door=KubernetesDoor(reviews=reviews, namespace="default"),
        closing=world.closing,
    )
    transport = httpx.ASGITransport(app, raise_app_exceptions=False)
    headers = {"Authorization": f"Bearer {who}", **more.pop("headers", {})}
    async with httpx.AsyncClient(
        transport=transport, base_url="http://g", headers=headers
    ) as client:
        return await client.request(method, path, **more)


@pytest.mark.parametrize(
    ("method", "path", "need"),
    [
        ("GET", "/v1/jobs", Need("list")),
        ("POST", "/v1/jobs", Need("create")),
        ("POST", "/v1/jobs:validate", Need("create")),
        ("GET", "/v1/jobs/a", Need("get", "a")),
        ("GET", "/v1/jobs/a/logs", Need("get", "a")),
        ("POST", "/v1/jobs/a/suspend", Need("patch", "a")),
        ("DELETE", "/v1/jobs/a", Need("delete", "a")),
        ("POST", "/v1/jobs/a/whatever", Need("*", "a")),
        ("GET", "/v1/metrics", Need("list")),
        ("GET", "/ui", Need("list")),
        ("GET", "/ui/jobs/a", Need("get", "a")),
        ("GET", "/v2", Need("*")),
    ],
)
def test_a_request_needs_the_right_that_kubectl_would(method: str, path: str, need: Need) -> None:
    assert need_of(method, path) == need


async def test_who_may_get_a_job_is_shown_it() -> None:
    reviews = FakeReviews("get")
    assert (await send(reviews, "GET", "/v1/jobs/demo")).status_code == 200
    assert reviews.asked == [Ask("get", "rlhf.ebbtide.dev", "rlhfjobs", "default", "demo")]


async def test_who_may_not_is_told_what_is_missing() -> None:
    answer = await send(FakeReviews("get"), "DELETE", "/v1/jobs/demo")
    assert (answer.status_code, answer.json()["type"][-9:]) == (403, "forbidden")
    assert "may not delete job demo" in answer.json()["detail"]


async def test_nobodys_token_is_refused() -> None:
    answer = await send(FakeReviews("get"), "GET", "/v1/jobs/demo", who="eve")
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")


async def test_the_probes_ask_nobody() -> None:
    assert (await send(FakeReviews(down=True), "GET", "/healthz")).status_code == 200


async def test_nobody_is_let_in_while_the_reviewer_does_not_answer() -> None:
    answer = await send(FakeReviews("get", down=True), "GET", "/v1/jobs/demo")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "1")


async def test_a_job_carries_its_submitter_in_a_form_that_fits_a_label() -> None:
    reviews = FakeReviews("create")
    answer = await send(reviews, "POST", "/v1/jobs", json=a_job("mine"), headers=dict(key()))
    assert answer.status_code == 201
    tenant = answer.json()["metadata"]["labels"]["rlhf.ebbtide.dev/tenant"]
    assert tenant.startswith("u-")
    assert len(tenant) == 18
