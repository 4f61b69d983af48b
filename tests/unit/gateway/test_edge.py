from __future__ import annotations

from typing import Any

import pytest

from ebbtide.errors import Permanent, Temporary
from ebbtide.testing.cluster import FakeCluster
from tests.worlds.gateway import World, a_job, key


class BrokenCluster(FakeCluster):
    """Fails every list with `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def list(self, *_: Any, **__: Any) -> Any:
        raise self.error


@pytest.mark.parametrize("token", ["", "wrong", "ebt_test-toke", "ebt_test-token2", "\u00e9"])
async def test_a_wrong_token_gets_401_and_nothing_else(token: str) -> None:
    async with World().client(token="") as api:
        headers = {b"Authorization": f"Bearer {token}".encode()}
        answer = await api.get("/v1/jobs", headers=headers)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("header", [None, "Basic ebt_test-token", "ebt_test-token", "Bearer"])
async def test_only_a_bearer_token_counts(header: str | None) -> None:
    async with World().client(token="") as api:
        headers = {"Authorization": header} if header else {}
        answer = await api.get("/v1/jobs", headers=headers)
    assert answer.status_code == 401


async def test_every_api_route_asks_for_the_token_and_the_probes_do_not() -> None:
    async with World().client(token="") as api:
        for path in ("/v1/jobs", "/v1/jobs/x/events", "/openapi.json", "/nope"):
            assert (await api.get(path)).status_code == 401, path
        for path in ("/healthz", "/readyz", "/metrics"):
            assert (await api.get(path)).status_code == 200, path


async def test_insecure_serves_everybody() -> None:
    async with World(insecure=True).client(token="") as api:
        assert (await api.get("/v1/jobs")).status_code == 200


async def test_a_body_beyond_the_limit_is_refused_by_its_declared_size() -> None:
    async with World(max_body_bytes=1024).client() as api:
        answer = await api.post("/v1/jobs", json=a_job(bulk="x" * 2000), headers=key())
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"


async def test_a_body_of_unknown_size_is_refused_once_it_exceeds_the_limit() -> None:
    async def chunks() -> Any:
        for _ in range(8):
            yield b" " * 512

    async with World(max_body_bytes=1024).client() as api:
        headers = {**key(), "Content-Type": "application/json"}
        answer = await api.post("/v1/jobs", content=chunks(), headers=headers)
    assert answer.status_code == 413


async def test_a_tenant_beyond_its_rate_waits_and_then_goes_on() -> None:
    world = World(rate_per_second=1.0, rate_burst=2)
    async with world.client() as api:
        codes = [(await api.get("/v1/jobs")).status_code for _ in range(3)]
        refused = await api.get("/v1/jobs")
        world.clock.seconds += float(refused.headers["retry-after"])
        later = await api.get("/v1/jobs")
    assert codes == [200, 200, 429]
    assert later.status_code == 200


async def test_guessing_tokens_is_limited_apart_from_the_tenants() -> None:
    async with World(rate_per_second=1.0, rate_burst=2).client() as api:
        wrong = {"Authorization": "Bearer guess"}
        codes = [(await api.get("/v1/jobs", headers=wrong)).status_code for _ in range(3)]
        assert codes == [401, 401, 429]
        assert (await api.get("/v1/jobs")).status_code == 200


async def test_answers_carry_security_headers_and_a_request_id() -> None:
    async with World().client() as api:
        own = await api.get("/v1/jobs", headers={"X-Request-Id": "abc-1"})
        odd = await api.get("/v1/jobs", headers={"X-Request-Id": "a b\tc"})
    assert own.headers["x-request-id"] == "abc-1"
    assert odd.headers["x-request-id"] not in ("a b\tc", "")
    assert own.headers["x-content-type-options"] == "nosniff"
    assert own.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in own.headers["content-security-policy"]


async def test_a_bug_is_a_500_that_tells_nothing() -> None:
    world = World()
    world.cluster = BrokenCluster(RuntimeError("secret detail"))
    async with world.client() as api:
        answer = await api.get("/v1/jobs")
    assert answer.status_code == 500
    assert "secret" not in answer.text
    assert answer.json()["requestId"] == answer.headers["x-request-id"]


async def test_a_store_that_is_away_for_a_moment_is_a_503() -> None:
    world = World()
    world.cluster = BrokenCluster(Temporary("database is locked at /var/x", delay=3))
    async with world.client() as api:
        answer = await api.get("/v1/jobs")
        ready = await api.get("/readyz")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "3")
    assert "/var/x" not in answer.text
    assert ready.status_code == 503


async def test_damaged_data_is_a_500_that_tells_nothing() -> None:
    world = World()
    world.cluster = BrokenCluster(Permanent("bad block in /var/x"))
    async with world.client() as api:
        answer = await api.get("/v1/jobs")
    assert answer.status_code == 500
    assert "/var/x" not in answer.text


async def test_requests_are_counted_by_route_and_never_by_name() -> None:
    world = World()
    await world.put_job()
    async with world.client() as api:
        await api.get("/v1/jobs/demo")
        await api.get("/v1/jobs/other")
        text = (await api.get("/metrics")).text
    line = 'ebbtide_gateway_requests_total{method="GET",route="/v1/jobs/{name}",status="%s"} 1.0'
    assert line % 200 in text
    assert line % 404 in text
    assert "demo" not in text


async def test_a_draining_gateway_is_not_ready() -> None:
    world = World()
    world.closing.set()
    async with world.client() as api:
        assert (await api.get("/readyz")).status_code == 503
        assert (await api.get("/healthz")).status_code == 200
