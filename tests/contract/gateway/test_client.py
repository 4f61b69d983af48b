"""The client against a served gateway: what each call sends is what the routes take."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import httpx
import pytest

from ebbtide.client import ATTEMPTS, ApiError, Client, Unreachable
from ebbtide.errors import Refused
from tests.worlds.gateway import TOKEN, a_job, condition
from tests.worlds.serving import Served, served


@pytest.fixture(scope="module")
def gateway() -> Iterator[Served]:
    with served(heartbeat_seconds=0.05, poll_seconds=0.02) as found:
        yield found


@pytest.fixture
def client(gateway: Served) -> Iterator[Client]:
    with Client(url=gateway.url, token=TOKEN) as found:
        yield found


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    return (f"job-{number}" for number in itertools.count())


def test_a_job_goes_through_its_life(client: Client, gateway: Served, names: Iterator[str]) -> None:
    name = next(names)
    job = client.submit(a_job(name))
    assert (job.name, job.state) == (name, "Pending")
    assert client.suspend(name).spec["suspend"] is True
    assert client.resume(name).spec["suspend"] is False
    assert client.cancel(name).metadata.annotations["rlhf.ebbtide.dev/cancel"] == "true"
    gateway.do(gateway.world.end(name, "Failed", "Cancelled"))
    assert client.get(name).terminal
    client.delete(name)
    with pytest.raises(ApiError) as caught:
        client.get(name)
    assert (caught.value.status, caught.value.kind) == (404, "not-found")


def test_a_repeated_submission_is_one_job(client: Client, names: Iterator[str]) -> None:
    document = a_job(next(names))
    assert client.submit(document, key="k") == client.submit(document, key="k")


def test_a_fault_comes_with_its_pointer(client: Client) -> None:
    with pytest.raises(ApiError) as caught:
        client.validate(a_job(bogus=1))
    assert [fault.pointer for fault in caught.value.problem.errors] == ["/spec/bogus"]


def test_lists_go_over_all_pages(client: Client, names: Iterator[str]) -> None:
    made = [next(names) for _ in range(3)]
    for name in made:
        document = a_job(name)
        document["metadata"]["labels"] = {"pages": "yes"}
        client.submit(document)
    found = list(client.jobs(labels={"pages": "yes"}))
    assert [job.name for job in found] == made[::-1]


def test_events_are_followed_to_the_end(
    client: Client, gateway: Served, names: Iterator[str]
) -> None:
    name = next(names)
    running = [condition("Running")]
    gateway.do(gateway.world.put_job(name, conditions=running))
    kinds: list[str] = []
    for event in client.events(name):
        kinds.append(event.type)
        if event.type == "progress":
            gateway.do(gateway.world.end(name))
    assert kinds[0] == "state"
    assert kinds[-1] == "end"
    last = client.event_page(name).items[-1]
    assert list(client.events(name, after=last.id)) == []


def test_logs_results_and_costs_are_typed(
    client: Client, gateway: Served, names: Iterator[str]
) -> None:
    name = next(names)
    gateway.do(gateway.world.put_job(name, conditions=[condition("Complete")]))
    assert client.logs(name).items == []
    assert list(client.follow_logs(name)) == []
    assert client.metrics(name) == []
    assert client.cost(name).total == 0.0
    assert client.checkpoints(name).items == []
    assert client.samples(name, purpose="train").items == []
    assert client.ready()


def test_a_wrong_token_is_an_error_with_its_kind(gateway: Served) -> None:
    with Client(url=gateway.url, token="wrong") as client, pytest.raises(ApiError) as caught:
        client.page()
    assert caught.value.kind == "unauthorized"


# --- over a transport of our own ------------------------------------------------------------------


def failing(*answers: int | Exception) -> tuple[Client, list[float]]:
    """A client whose server gives these answers in turn, and the waits between them."""
    waits: list[float] = []
    left = iter(answers)

    def answer(request: httpx.Request) -> httpx.Response:
        found = next(left)
        if isinstance(found, Exception):
            raise found
        headers = {"Retry-After": "7"} if found == 429 else {}
        body = {"items": []} if found == 200 else {"type": "x/y", "title": "t", "status": found}
        return httpx.Response(found, json=body, headers=headers)

    transport = httpx.MockTransport(answer)
    return Client(url="http://gateway", transport=transport, sleep=waits.append), waits


def test_a_call_is_tried_again_while_the_gateway_is_away() -> None:
    client, waits = failing(httpx.ConnectError("no"), 503, 200)
    assert client.page().items == []
    assert len(waits) == 2


def test_it_waits_as_long_as_the_gateway_asks() -> None:
    client, waits = failing(429, 200)
    client.page()
    assert waits == [7.0]


def test_it_gives_up_with_the_way_out() -> None:
    client, _ = failing(*[httpx.ConnectError("no")] * ATTEMPTS)
    with pytest.raises(Unreachable, match="ebbtide up"):
        client.page()


def test_a_gateway_that_is_slow_is_not_called_absent() -> None:
    client, _ = failing(*[httpx.ReadTimeout("slow")] * ATTEMPTS)
    with pytest.raises(Unreachable, match="took the request and did not answer"):
        client.page()


def test_a_problem_that_stays_is_raised_as_it_is() -> None:
    client, _ = failing(*[503] * ATTEMPTS)
    with pytest.raises(ApiError) as caught:
        client.page()
    assert caught.value.status == 503


def test_what_the_caller_did_wrong_is_not_tried_again() -> None:
    client, waits = failing(404)
    with pytest.raises(ApiError):
        client.get("x")
    assert waits == []


def test_a_stream_is_taken_up_again_where_it_broke() -> None:
    seen: list[str | None] = []
    waits: list[float] = []
    event = '{"id":"%s","type":"%s"}'
    parts: Iterator[str | Exception] = iter(
        [
            "id: 1\nevent: step\ndata: " + event % ("1", "step") + "\n\nid: 2\nevent: st",
            httpx.ConnectError("away"),
            "id: 2\nevent: end\ndata: " + event % ("2", "end") + "\n\n",
        ]
    )

    def answer(request: httpx.Request) -> httpx.Response:
        seen.append(request.headers.get("last-event-id"))
        part = next(parts)
        if isinstance(part, Exception):
            raise part
        return httpx.Response(200, text=part, headers={"Content-Type": "text/event-stream"})

    transport = httpx.MockTransport(answer)
    with Client(url="http://gateway", transport=transport, sleep=waits.append) as client:
        found = [event.id for event in client.events("demo")]
    assert found == ["1", "2"]
    assert seen == [None, "1", "1"]
    assert len(waits) == 2


def test_something_else_at_the_address_is_named_as_such() -> None:
    answer = httpx.Response(404, text="<html>")
    transport = httpx.MockTransport(lambda _: answer)
    with Client(url="http://other", transport=transport) as client, pytest.raises(ApiError) as e:
        client.page()
    assert "no ebbtide gateway" in str(e.value)


@pytest.mark.parametrize("tail", ["/suspend?", "/suspend#", "/../x", "\n"])
def test_a_name_is_one_part_of_the_path(client: Client, names: Iterator[str], tail: str) -> None:
    name = next(names)
    client.submit(a_job(name))
    with pytest.raises(ApiError):
        client.resume(name + tail)
    assert not client.get(name).spec.get("suspend")


@pytest.mark.parametrize(("url", "token"), [("http://a:b", ""), ("http://a", "\u00e9")])
def test_what_is_no_address_or_token_is_refused(url: str, token: str) -> None:
    with pytest.raises(Refused):
        Client(url=url, token=token)
