"""What only the real hot store can show."""

from pathlib import Path

import pytest

from ebbtide.adapters.embedded import EmbeddedServers
from ebbtide.adapters.valkey import open_hot
from ebbtide.errors import Refused, Temporary


async def test_a_lost_server_is_temporary_and_found_again(tmp_path: Path) -> None:
    async with EmbeddedServers(folder=tmp_path) as servers:
        password = servers.credentials.valkey
        async with open_hot(servers.valkey_url, password=password) as hot:
            await hot.put("a", b"1", ttl=60)
            await servers.valkey.kill()
            with pytest.raises(Temporary, match="while getting a"):
                await hot.get("a")
            assert "pinging" in await hot.ping()
            await servers.valkey.start()
            assert await hot.get("a") is None
            assert await hot.ping() == ""


async def test_a_wrong_password_is_refused(servers: EmbeddedServers) -> None:
    async with open_hot(servers.valkey_url, password="wrong") as hot:
        with pytest.raises(Refused, match="denies us"):
            await hot.get("a")


async def test_a_bad_url_is_refused() -> None:
    with pytest.raises(Refused, match="not a hot store"):
        await open_hot("nonsense").__aenter__()
