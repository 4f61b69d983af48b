"""Whether an installation works: `python -m ebbtide_operator.checkup`, which `helm test` runs.

Asks the gateway whether it is ready, makes or finds the streams at the broker as a planner would,
and asks the hot store. Every finding is printed; one that is bad ends it with 1.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable, Mapping

import httpx
from pydantic import Field, SecretStr

from ebbtide import logs
from ebbtide.adapters.nats import open_bus
from ebbtide.adapters.valkey import open_hot
from ebbtide.errors import EbbtideError, Refused
from ebbtide.exits import EXIT_OK, EXIT_REFUSED
from ebbtide.logs import Log
from ebbtide.settings import Settings

EXIT_BAD = 1
_SECONDS = 20.0


class CheckupSettings(Settings):
    """Read from the environment."""

    gateway_url: str
    """Where the gateway is."""
    nats_url: str
    """The broker."""
    nats_user: str = ""
    """The planner's user there: it makes the streams."""
    nats_password: SecretStr = SecretStr("")
    """Its password."""
    nats_copies: int = Field(default=1, ge=1, le=5)
    """Copies of each stream."""
    valkey_url: str
    """The hot store."""
    valkey_password: SecretStr = SecretStr("")
    """Its password."""


async def look(settings: CheckupSettings, log: Log) -> Mapping[str, str]:
    """What is wrong, by part; an empty text where nothing is."""

    async def broker() -> str:
        return await _broker(settings, log)

    checks: dict[str, Callable[[], Awaitable[str]]] = {
        "gateway": lambda: _gateway(settings.gateway_url),
        "broker": broker,
        "hot store": lambda: _hot(settings),
    }
    return {name: await _bounded(check) for name, check in checks.items()}


async def _bounded(check: Callable[[], Awaitable[str]]) -> str:
    try:
        async with asyncio.timeout(_SECONDS):
            return await check()
    except TimeoutError:
        return f"no answer in {_SECONDS} s"
    except (EbbtideError, httpx.HTTPError) as error:
        return str(error) or type(error).__name__


async def _gateway(url: str) -> str:
    async with httpx.AsyncClient(trust_env=False) as http:
        answer = await http.get(f"{url}/readyz")
    return "" if answer.is_success else f"{answer.status_code}: {answer.text[:200]}"


async def _broker(settings: CheckupSettings, log: Log) -> str:
    async with open_bus(
        settings.nats_url,
        user=settings.nats_user,
        password=settings.nats_password.get_secret_value(),
        name="checkup",
        manage=True,
        replicas=settings.nats_copies,
        log=log,
    ):
        return ""


async def _hot(settings: CheckupSettings) -> str:
    password = settings.valkey_password.get_secret_value()
    async with open_hot(settings.valkey_url, password=password) as hot:
        return await hot.ping()


def main() -> int:
    """Exit code of the process."""
    log = logs.setup("info", role="checkup")
    try:
        settings = CheckupSettings.load(os.environ)
    except Refused as error:
        log.error("settings refused", why=error.detail)  # noqa: TRY400 - it names the fix
        return EXIT_REFUSED
    found = asyncio.run(look(settings, log))
    for part, trouble in found.items():
        log.info("checked", part=part, trouble=trouble or "none")
    return EXIT_BAD if any(found.values()) else EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
