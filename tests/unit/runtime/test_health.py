"""Probes say what is wrong."""

import asyncio

import httpx
import pytest

from ebbtide.health import Health, serve_health
from ebbtide.metrics import new_registry


async def probe(health: Health, path: str) -> httpx.Response:
    server = serve_health(health, new_registry(), host="127.0.0.1", port=0)
    async with server as port, httpx.AsyncClient() as client:
        return await client.get(f"http://127.0.0.1:{port}{path}")


async def test_a_starting_process_is_alive_but_not_ready() -> None:
    health = Health()
    assert (await probe(health, "/healthz")).status_code == 200
    assert (await probe(health, "/readyz")).json()["complaints"] == {"started": "starting"}


async def test_readiness_names_the_complaint() -> None:
    health = Health()
    health.ready = True
    assert (await probe(health, "/readyz")).status_code == 200
    health.require_ready("broker", lambda: "not connected")
    answer = await probe(health, "/readyz")
    assert (answer.status_code, answer.json()["complaints"]) == (503, {"broker": "not connected"})


async def test_a_failed_liveness_check_fails_both_probes() -> None:
    health = Health()
    health.require_alive("engine", lambda: "its thread died")
    assert (await probe(health, "/healthz")).status_code == 503
    assert "engine" in (await probe(health, "/readyz")).json()["complaints"]


@pytest.mark.parametrize(("path", "status"), [("/metrics", 200), ("/other", 404)])
async def test_paths(path: str, status: int) -> None:
    assert (await probe(Health(), path)).status_code == status


def test_a_client_that_is_still_there_at_the_end_leaves_no_complaint() -> None:
    said: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: said.append(context["message"]))
        server = serve_health(Health(), new_registry(), host="127.0.0.1", port=0)
        async with server as port:
            _, silent = await asyncio.open_connection("127.0.0.1", port)
            _, other = await asyncio.open_connection("127.0.0.1", port)
            other.write(b"GET /healthz HTTP/1.1\r\n\r\n")
            await other.drain()
            other.close()
            await asyncio.sleep(0.05)
        silent.close()

    asyncio.run(main())
    assert said == []
