"""The broker's configuration as the chart writes it, on real servers."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from ebbtide import logs
from ebbtide.adapters.daemon import free_port
from ebbtide.adapters.embedded import EmbeddedServers, _nats_binary
from ebbtide.adapters.nats import NatsBus, open_bus
from ebbtide.errors import Refused
from ebbtide.ports import FactMessage
from ebbtide.streams import STREAMS
from ebbtide_operator.checkup import CheckupSettings, look
from tests.worlds.chart import PROFILES, rendered

pytestmark = pytest.mark.kube
LOG = logs.setup("error")
ROLES = ("planner", "prefill", "decode", "reward", "learner")


def config(copies: int) -> str:
    return config_of(rendered(f"nats.replicas={copies}"))


def config_of(objects: list[dict[str, Any]]) -> str:
    return next(
        str(one["data"]["nats.conf"])
        for one in objects
        if one["kind"] == "ConfigMap" and one["metadata"]["name"] == "ebbtide-nats"
    )


class Server:
    """One node, as its pod starts it; only ports and folder are this machine's."""

    def __init__(self, folder: Path, number: int) -> None:
        self.folder, self.name = folder / str(number), f"n{number}"
        self.port, self.route, self.monitor = (free_port() for _ in range(3))
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, peers: list[Server]) -> None:
        self.folder.mkdir(parents=True)
        text = config(3 if len(peers) > 1 else 1).replace("/data", str(self.folder))
        for old, new in ((4222, self.port), (6222, self.route), (8222, self.monitor)):
            text = text.replace(f"port: {old}", f"port: {new}")
        (self.folder / "nats.conf").write_text(text)
        routes = ",".join(f"nats://route:r1@127.0.0.1:{peer.route}" for peer in peers)
        more = [f"--routes={routes}"] if len(peers) > 1 else []
        passwords = {f"NATS_{role.upper()}": f'"1e5{role}"' for role in ROLES}
        with (self.folder / "log").open("wb") as log:
            self._process = await asyncio.create_subprocess_exec(
                str(_nats_binary()),
                f"--config={self.folder}/nats.conf",
                f"--name={self.name}",
                "--addr=127.0.0.1",
                *more,
                env=os.environ | passwords | {"NATS_ROUTE_QUOTED": '"r1"'},
                stderr=log,
            )

    async def healthy(self) -> None:
        async with httpx.AsyncClient(trust_env=False) as http, asyncio.timeout(60):
            while True:
                try:
                    if await self._serves(http):
                        return
                except httpx.HTTPError:
                    pass
                assert self._process is not None
                assert self._process.returncode is None, (self.folder / "log").read_text()
                await asyncio.sleep(0.1)

    async def _serves(self, http: httpx.AsyncClient) -> bool:
        """Healthy, and it knows who leads: nobody makes streams before that."""
        at = f"http://127.0.0.1:{self.monitor}"
        if not (await http.get(f"{at}/healthz?js-server-only=true")).is_success:
            return False
        meta = (await http.get(f"{at}/jsz")).json().get("meta_cluster")
        return meta is None or bool(meta.get("leader"))

    async def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@asynccontextmanager
async def broker(folder: Path, count: int) -> AsyncIterator[list[Server]]:
    servers = [Server(folder, number) for number in range(count)]
    async with AsyncExitStack() as stack:
        for server in servers:
            stack.push_async_callback(server.kill)
            await server.start(servers)
        for server in servers:
            await server.healthy()
        yield servers


def as_role(
    servers: list[Server], role: str, *, manage: bool = False
) -> AbstractAsyncContextManager[NatsBus]:
    urls = ",".join(f"nats://127.0.0.1:{server.port}" for server in servers)
    return open_bus(
        urls, user=role, password=f"1e5{role}", manage=manage, replicas=len(servers), log=LOG
    )


async def publish(bus: NatsBus, number: int) -> None:
    fact = FactMessage(f"f.u1.{number}.finished", b"x", dedup_id=f"d{number}")
    await bus.publish_facts([fact])


async def test_each_role_has_its_own_password_and_rights(tmp_path: Path) -> None:
    async with broker(tmp_path, 1) as servers:
        async with as_role(servers, "planner", manage=True), as_role(servers, "decode"):
            pass
        wrong = open_bus(
            f"nats://127.0.0.1:{servers[0].port}", user="decode", password="x", log=LOG
        )
        with pytest.raises(Refused):
            async with wrong:
                pass


async def test_what_three_servers_acknowledged_outlives_one_of_them(tmp_path: Path) -> None:
    async with (
        broker(tmp_path, 3) as servers,
        as_role(servers, "planner", manage=True) as planner,
        as_role(servers, "decode") as actor,
    ):
        info = await planner._js.stream_info("FACTS")
        assert info.config.num_replicas == 3
        assert info.cluster is not None
        leader_name = info.cluster.leader
        await publish(actor, 1)
        leader = next(s for s in servers if s.name == leader_name)
        await leader.kill()
        await _until_published(actor)
        rest = [s for s in servers if s is not leader]
        async with as_role(rest, "planner") as other:
            assert (await other._js.stream_info("FACTS")).state.messages == 2


async def _until_published(actor: NatsBus) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                return await publish(actor, 2)
            except Exception:  # noqa: BLE001 - while a new leader is chosen
                await asyncio.sleep(0.2)


async def test_helm_test_names_the_part_that_does_not_answer(servers: EmbeddedServers) -> None:
    settings = CheckupSettings(
        gateway_url=f"http://127.0.0.1:{free_port()}",
        nats_url=servers.nats_url,
        nats_user="planner",
        nats_password=SecretStr(servers.credentials.nats["planner"]),
        valkey_url=servers.valkey_url,
        valkey_password=SecretStr(servers.credentials.valkey),
    )
    found = await look(settings, LOG)
    assert found["broker"] == found["hot store"] == ""
    assert "connect" in found["gateway"]


@pytest.mark.parametrize("profile", PROFILES)
def test_the_broker_of_every_profile_has_room_for_the_streams(profile: str) -> None:
    text = config_of(rendered(profile=profile))
    found = re.search(r"max_file_store: (\d+)(MB|GB)", text)
    assert found, text
    room = int(found[1]) * {"MB": 1 << 20, "GB": 1 << 30}[found[2]]
    assert room >= sum(stream.max_bytes for stream in STREAMS)
