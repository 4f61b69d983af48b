"""The supervisor's children: programs of this platform that must run, started again when they die."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress

import httpx

from ebbtide.adapters.embedded import HOST
from ebbtide.errors import Refused
from ebbtide.exits import EXIT_REFUSED
from ebbtide.logs import Log

POLL_SECONDS = 0.1
END_SECONDS = 15.0
BACKOFF_SECONDS = (0.2, 10.0)
STEADY_SECONDS = 30.0
"""A child that lived so long starts again at once if it dies."""


class Child:
    """One process that must run: started, watched, started again."""

    def __init__(
        self,
        name: str,
        module: str,
        env: Mapping[str, str],
        *,
        log: Log,
        started: Callable[[], None],
    ) -> None:
        self.name = name
        self.pid = 0
        self._started = started
        self._module, self._log = module, log
        self._health = f"http://{HOST}:{env['EBBTIDE_HEALTH_PORT']}/readyz"
        own = {k: v for k, v in os.environ.items() if not k.startswith("EBBTIDE_")}
        self._env = own | dict(env)
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        """Keep it running until cancelled; raises Refused if its settings are refused."""
        pause = BACKOFF_SECONDS[0]
        clock = asyncio.get_running_loop()
        while True:
            began = clock.time()
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                *("-m", self._module),
                env=self._env,
                stdin=asyncio.subprocess.DEVNULL,
                start_new_session=True,
            )
            self.pid = self._process.pid
            self._started()
            code = await self._process.wait()
            self._log.warning("process ended; starting it again", child=self.name, code=code)
            steady = clock.time() - began > STEADY_SECONDS
            if code == EXIT_REFUSED and not steady:
                raise Refused(f"{self.name} refused its settings; its last line says which")
            pause = BACKOFF_SECONDS[0] if steady else min(pause * 2, BACKOFF_SECONDS[1])
            await asyncio.sleep(pause)

    async def ready(self, http: httpx.AsyncClient) -> None:
        """Return once it answers that it is ready."""
        while True:
            with suppress(httpx.HTTPError):
                if (await http.get(self._health, timeout=2.0)).is_success:
                    return
            await asyncio.sleep(POLL_SECONDS)

    async def end(self) -> None:
        """SIGTERM, then SIGKILL."""
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        try:
            async with asyncio.timeout(END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
