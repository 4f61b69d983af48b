"""What jobs cost all together, and beside OpenCost's bill."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from ebbtide import labels, paths, usage
from ebbtide.adapters.opencost import OpenCost
from ebbtide.api import CostGroup
from ebbtide.cli.spending import total
from ebbtide.errors import Temporary
from ebbtide.usage import Usage
from services.gateway.core.submit import TENANT_LABEL
from tests.worlds.gateway import World

PRICE = [{"pool": "p", "perHour": 36.0}]


async def job(
    world: World, name: str, seconds: float, *, tenant: str = "a", team: str = "x", **spec: Any
) -> str:
    """A job whose one pod was held from 1,000 on; returns its uid."""
    uid = (await world.put_job(name)).metadata.uid
    told = {"metadata": {"labels": {TENANT_LABEL: tenant, "team": team}}}
    await world.cluster.patch("RLHFJob", "default", name, told | {"spec": {"prices": PRICE} | spec})
    held = Usage(uid, "decode", "d-0", "u", "p", 1, 1000.0, 1000.0 + seconds, 1000.0 + seconds)
    await world.blobs.put(paths.usage(uid, "d-0", "u"), usage.encode(held))
    return uid


async def costs(world: World, **query: Any) -> list[tuple[Any, ...]]:
    async with world.client() as api:
        answer = await api.get("/v1/costs", params=query)
    assert answer.status_code == 200, answer.text
    return [(*one["key"].values(), one["jobs"], one["total"]) for one in answer.json()["items"]]


async def three_jobs() -> World:
    world = World()
    await job(world, "one", 100.0)
    await job(world, "two", 50.0, team="y")
    await job(world, "three", 10.0, tenant="b")
    return world


async def test_costs_are_added_up_by_tenant_and_by_label() -> None:
    world = await three_jobs()
    assert await costs(world) == [("a", 2, pytest.approx(1.5)), ("b", 1, pytest.approx(0.1))]
    assert await costs(world, by=["label:team", "tenant"]) == [
        ("x", "a", 1, pytest.approx(1.0)),
        ("x", "b", 1, pytest.approx(0.1)),
        ("y", "a", 1, pytest.approx(0.5)),
    ]
    assert await costs(world, by="label:none", label="team=x") == [("", 2, pytest.approx(1.1))]


async def test_currencies_are_never_mixed_and_an_unknown_price_makes_a_total_unknown() -> None:
    world = await three_jobs()
    await job(world, "dear", 10.0, currency="EUR")
    await job(world, "unpriced", 10.0, tenant="b", prices=[])
    assert await costs(world) == [
        ("a", 1, pytest.approx(0.1)),
        ("a", 2, pytest.approx(1.5)),
        ("b", 2, None),
    ]


async def test_a_sum_says_how_many_jobs_without_a_price_it_lacks() -> None:
    world = await three_jobs()
    await job(world, "unpriced", 10.0, tenant="b", prices=[])
    async with world.client() as api:
        found = (await api.get("/v1/costs", params={"by": "tenant"})).json()["items"]
    told = [(one["unpricedJobs"], total(CostGroup.model_validate(one))) for one in found]
    assert told == [(0, "1.5000 USD"), (1, "0.1000 USD + 1 job without a price")]


async def test_a_sum_of_nothing_that_has_a_price_is_unknown() -> None:
    world = World()
    await job(world, "unpriced", 10.0, prices=[])
    async with world.client() as api:
        found = (await api.get("/v1/costs", params={"by": "tenant"})).json()["items"]
    assert [total(CostGroup.model_validate(one)) for one in found] == ["unknown"]


@pytest.mark.parametrize("key", ["colour", "label:", ""])
async def test_what_jobs_cannot_be_told_apart_by_is_refused(key: str) -> None:
    async with World().client() as api:
        assert (await api.get("/v1/costs", params={"by": key})).status_code == 422


# --- OpenCost -------------------------------------------------------------------------------------


@contextmanager
def opencost(answer: Any, status: int = 200) -> Iterator[tuple[str, list[dict[str, list[str]]]]]:
    """A server that answers /allocation so; its address, and the queries that it got."""
    asked: list[dict[str, list[str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            assert parts.path == "/allocation"
            asked.append(parse_qs(parts.query))
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(answer).encode())

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()
            thread.join()


def allocation(name: str, cost: float) -> dict[str, Any]:
    return {name: {"name": name, "totalCost": cost, "minutes": 60.0}}


async def test_both_bills_are_shown_job_by_job() -> None:
    world = await three_jobs()
    jobs, _ = await world.cluster.list("RLHFJob", "default")
    uids = {one.metadata.name: one.metadata.uid for one in jobs}
    theirs = allocation(uids["one"], 0.51) | allocation(uids["two"], 0.9)
    sets = [theirs | allocation("gone", 3.0), allocation("__idle__", 9.0)]
    with opencost({"code": 200, "data": sets}) as (url, asked):
        world.settings = world.settings.model_copy(update={"opencost_url": url})
        async with world.client() as api:
            query = {"since": 1000, "until": 1050}
            found = (await api.get("/v1/costs/opencost", params=query)).json()
    told = {one["job"]: (one["ours"], one["theirs"], one["agree"]) for one in found["items"]}
    assert told == {
        "one": (pytest.approx(0.5), 0.51, True),  # half of its time lies in the window
        "two": (pytest.approx(0.5), 0.9, False),
        "three": (pytest.approx(0.1), None, None),
    }
    assert found["strangers"] == ["gone"]
    assert asked[0]["aggregate"] == ["label:rlhf_ebbtide_dev_job_uid"]
    assert asked[0]["window"] == ["1000,1050"]


@pytest.mark.parametrize(
    ("answer", "status"), [({}, 500), ({"message": "no"}, 200), ({"data": [{"a": {}}]}, 200)]
)
async def test_an_opencost_that_fails_is_named_and_nothing_is_made_up(
    answer: Any, status: int
) -> None:
    with opencost(answer, status) as (url, _), pytest.raises(Temporary, match=url):
        await OpenCost(url).by_label(labels.JOB_UID, 0.0, 1.0)


async def test_without_an_address_there_is_no_second_bill() -> None:
    async with World().client() as api:
        query = {"since": 0, "until": 1}
        answer = await api.get("/v1/costs/opencost", params=query)
    assert answer.status_code == 404
    assert "EBBTIDE_OPENCOST_URL" in answer.json()["detail"]
