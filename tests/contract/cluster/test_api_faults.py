"""An API server that answers badly: what is tried again, and what is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from aiohttp import web

from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.cluster_kubernetes import KubernetesCluster, open_kubernetes
from ebbtide.adapters.cluster_kubernetes.forms import Forms
from ebbtide.adapters.cluster_kubernetes.kinds import KINDS
from ebbtide.adapters.cluster_kubernetes.watching import Watching
from ebbtide.errors import Conflict, Permanent, Temporary, Throttled
from ebbtide.ports import Change, Meta, Resource

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
LEASE = ("Lease", "default", "a")


class Server:
    """Answers each request by the next handler of its script; the last one stays."""

    def __init__(self) -> None:
        self.script: list[Handler] = []
        self.asked: list[str] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(f"{request.method} {request.path_qs}")
        handler = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        return await handler(request)


def status(code: int, **headers: str) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        body = {"kind": "Status", "code": code, "message": "m"}
        return web.json_response(body, status=code, headers=headers)

    return handler


def lease(version: str) -> dict[str, Any]:
    return {"metadata": {"name": "a", "resourceVersion": version}, "spec": {"n": 1}}


def found(version: str = "1") -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response(lease(version))

    return handler


async def hangs_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.close()
    return web.Response()


def told(*events: dict[str, Any], silent: float = 0.0) -> Handler:
    async def handler(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        for event in events:
            await answer.write(msgspec.json.encode(event) + b"\n")
        await asyncio.sleep(silent)
        return answer

    return handler


def change(version: str, kind: str = "MODIFIED") -> dict[str, Any]:
    return {"type": kind, "object": lease(version)}


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    found = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    found.port = runner.addresses[0][1]
    yield found
    await runner.cleanup()


@pytest.fixture
async def cluster(server: Server, tmp_path: Path) -> AsyncIterator[KubernetesCluster]:
    where = {"server": f"http://127.0.0.1:{server.port}"}
    document = {
        "current-context": "c",
        "clusters": [{"name": "c", "cluster": where}],
        "users": [{"name": "c", "user": {}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
    }
    (tmp_path / "config").write_text(yaml.safe_dump(document))
    async with open_kubernetes(
        manager="test", clock=SystemClock(), kubeconfig=str(tmp_path / "config")
    ) as opened:
        yield opened


async def test_a_read_is_tried_again(server: Server, cluster: KubernetesCluster) -> None:
    server.script = [status(500), hangs_up, found()]
    assert (await cluster.get(*LEASE)).metadata.resource_version == "1"
    assert len(server.asked) == 3


async def test_a_read_is_given_up_after_some_tries(
    server: Server, cluster: KubernetesCluster
) -> None:
    server.script = [status(503)]
    with pytest.raises(Temporary):
        await cluster.get(*LEASE)
    assert len(server.asked) == 4


async def test_a_write_whose_answer_was_lost_is_not_repeated(
    server: Server, cluster: KubernetesCluster
) -> None:
    server.script = [hangs_up]
    with pytest.raises(Temporary, match="does not answer"):
        await cluster.patch(*LEASE, {"spec": {"n": 2}})
    assert len(server.asked) == 1


async def test_a_write_that_was_put_off_is_sent_again(
    server: Server, cluster: KubernetesCluster
) -> None:
    server.script = [status(429, **{"Retry-After": "1"}), found("2")]
    changed = await cluster.patch(*LEASE, {"spec": {"n": 2}})
    assert changed.metadata.resource_version == "2"


async def test_a_server_that_is_too_busy_says_for_how_long(
    server: Server, cluster: KubernetesCluster
) -> None:
    server.script = [status(429)]
    with pytest.raises(Throttled):
        await cluster.create(Resource("coordination.k8s.io/v1", "Lease", Meta(name="a")))


async def test_a_conflict_is_never_tried_again(server: Server, cluster: KubernetesCluster) -> None:
    server.script = [status(409)]
    with pytest.raises(Conflict, match="read it again"):
        await cluster.patch(*LEASE, {"spec": {"n": 2}}, "1")
    assert len(server.asked) == 1


async def test_wrong_credentials_are_said(server: Server, cluster: KubernetesCluster) -> None:
    server.script = [status(401)]
    with pytest.raises(Permanent, match="credentials"):
        await cluster.get(*LEASE)


async def test_no_way_to_a_server_is_said(tmp_path: Path) -> None:
    with pytest.raises(Permanent, match="no way"):
        async with open_kubernetes(
            manager="test", clock=SystemClock(), kubeconfig=str(tmp_path / "none")
        ):
            pass


async def test_a_list_whose_pages_expired_is_taken_anew(
    server: Server, cluster: KubernetesCluster
) -> None:
    async def first(request: web.Request) -> web.StreamResponse:
        meta = {"resourceVersion": "5", "continue": "next"}
        return web.json_response({"metadata": meta, "items": [lease("1")]})

    async def whole(request: web.Request) -> web.StreamResponse:
        return web.json_response({"metadata": {"resourceVersion": "9"}, "items": [lease("2")]})

    server.script = [first, status(410), whole]
    found, version = await cluster.list("Lease", "default")
    assert ([one.metadata.resource_version for one in found], version) == (["2"], "9")


async def test_a_broken_watch_goes_on_where_it_was(
    server: Server, cluster: KubernetesCluster
) -> None:
    server.script = [told(change("3")), hangs_up, told(change("4"), silent=5)]
    seen = await changes(cluster, 2)
    assert [one.resource.metadata.resource_version for one in seen] == ["3", "4"]
    assert "resourceVersion=2" in server.asked[0]
    assert "resourceVersion=3" in server.asked[1]
    assert "allowWatchBookmarks=true" in server.asked[0]


async def test_a_bookmark_moves_the_watch_on(server: Server, cluster: KubernetesCluster) -> None:
    server.script = [told(change("7", "BOOKMARK")), told(change("8"), silent=5)]
    seen = await changes(cluster, 2)
    assert [one.type for one in seen] == ["BOOKMARK", "MODIFIED"]
    assert "resourceVersion=7" in server.asked[1]


@pytest.mark.parametrize("gone", [status(410), told({"type": "ERROR", "object": {"code": 410}})])
async def test_expired_history_ends_a_watch(
    server: Server, cluster: KubernetesCluster, gone: Handler
) -> None:
    server.script = [gone]
    with pytest.raises(Conflict, match="expired"):
        await changes(cluster, 1)


async def test_a_watch_that_falls_silent_is_taken_up_again(
    server: Server, cluster: KubernetesCluster
) -> None:
    server.script = [told(change("3"), silent=60), told(change("4"), silent=60)]
    watching = Watching(
        api=cluster.api,
        forms=Forms(kinds=KINDS, render=None),
        clock=SystemClock(),
        namespace="default",
        silence=0.3,
    )
    seen = []
    async with asyncio.timeout(20):
        async for one in watching.changes(["Lease"], "2"):
            seen.append(one.resource.metadata.resource_version)
            if len(seen) == 2:
                break
    assert seen == ["3", "4"]


async def test_a_watch_that_nobody_answers_fails_in_the_end(
    server: Server, cluster: KubernetesCluster
) -> None:
    server.script = [status(503)]
    watching = Watching(
        api=cluster.api,
        forms=Forms(kinds=KINDS, render=None),
        clock=SystemClock(),
        namespace=None,
        silence=0.1,
        patience=0.2,
    )
    with pytest.raises(Temporary):
        _ = [one async for one in watching.changes(["Lease"], "2")]


async def changes(cluster: KubernetesCluster, number: int) -> list[Change]:
    seen: list[Change] = []
    async with asyncio.timeout(20):
        async for one in cluster.watch(["Lease"], "default", "2"):
            seen.append(one)
            if len(seen) == number:
                break
    return seen
