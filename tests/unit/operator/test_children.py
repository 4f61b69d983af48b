"""What must run is started again, and says what is in the way."""

from __future__ import annotations

import asyncio
import errno
import io
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ebbtide import logs
from ebbtide.errors import Permanent, Refused, Temporary
from ebbtide_operator.children import Child, Said, keep

AT_ONCE = (0.0, 0.0)
NO_SPACE = OSError(errno.ENOSPC, "No space left on device")


class Process:
    """Ends when it is told to."""

    pid = 7

    def __init__(self) -> None:
        self.returncode: int | None = None
        self._ended = asyncio.Event()

    def exit(self, code: int) -> None:
        self.returncode = code
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def terminate(self) -> None:
        self.exit(-15)

    def kill(self) -> None:
        self.exit(-9)


class Machine:
    """Starts processes as planned: with an exit code, an error, or (None) one that lives."""

    def __init__(self, log: Path, *plan: int | OSError | None) -> None:
        self.log = log
        self.plan = list(plan)
        self.started: list[Process] = []
        self.ports: list[int] = []

    async def spawn(self, _: str, env: Mapping[str, str]) -> Process:
        self.ports.append(int(env["EBBTIDE_HEALTH_PORT"]))
        step = self.plan.pop(0) if self.plan else None
        if isinstance(step, OSError):
            raise step
        self.started.append(Process())
        if step is not None:
            with self.log.open("a") as log:
                log.write('{"level":"error","role":"gateway","why":"port 80 is taken"}\nother\n')
            self.started[-1].exit(step)
        return self.started[-1]

    def child(self) -> Child:
        log = logs.setup("info", stream=io.StringIO())
        return Child(
            "gateway",
            "services.gateway",
            {},
            log=log,
            said=Said(self.log),
            changed=lambda: None,
            spawn=self.spawn,
            backoff=AT_ONCE,
        )


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not holds():
            await asyncio.sleep(0)


async def is_ready(child: Child) -> bool:
    async with httpx.AsyncClient(transport=httpx.MockTransport(lambda _: httpx.Response(200))) as c:
        return await child.answers(c)


@pytest.mark.parametrize(("code", "kind"), [(2, Refused), (4, Permanent)])
async def test_a_first_start_that_is_refused_is_the_end_and_says_why(
    tmp_path: Path, code: int, kind: type[Exception]
) -> None:
    child = Machine(tmp_path / "up.log", code).child()
    with pytest.raises(kind, match="the gateway cannot start: port 80 is taken"):
        await asyncio.wait_for(child.run(), 10)


async def test_what_was_ready_once_is_started_again_though_it_is_refused(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "up.log", None, 2, 4)
    child = machine.child()
    async with running(child.run()):
        await until(lambda: len(machine.started) == 1)
        assert await is_ready(child)
        machine.started[0].exit(-9)
        await until(lambda: len(machine.started) == 4)
        assert "port 80 is taken" in child.trouble
        assert await is_ready(child)
        assert child.trouble == ""


async def test_a_process_that_cannot_be_made_is_tried_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "up.log", NO_SPACE, NO_SPACE)
    child = machine.child()
    async with running(child.run()):
        await until(lambda: bool(machine.started))
        assert "cannot be started: No space left" in child.trouble
        assert await is_ready(child)


async def test_a_health_port_that_is_taken_meanwhile_is_no_refusal(tmp_path: Path) -> None:
    with socket.socket() as thief:

        class Late(Machine):
            async def spawn(self, module: str, env: Mapping[str, str]) -> Process:
                if not self.ports:
                    thief.bind(("127.0.0.1", int(env["EBBTIDE_HEALTH_PORT"])))
                    thief.listen()
                return await super().spawn(module, env)

        machine = Late(tmp_path / "up.log", 2)
        async with running(machine.child().run()):
            await until(lambda: len(machine.started) == 2)
            assert machine.ports[0] != machine.ports[1]


class Server:
    """Comes back once nothing of `plan` is in the way any more."""

    def __init__(self, *plan: Exception) -> None:
        self.plan = list(plan)
        self.up = False

    def alive(self) -> bool:
        return self.up

    async def start(self) -> None:
        if self.plan:
            raise self.plan.pop(0)
        self.up = True


async def test_a_server_is_tried_again_whatever_is_in_the_way() -> None:
    log = logs.setup("info", stream=io.StringIO())
    server = Server(Temporary("port 1 is in use"), NO_SPACE, Permanent("ended at once"))
    told: list[str] = []
    async with running(keep(server, name="nats", log=log, told=told.append, backoff=AT_ONCE)):
        await until(lambda: server.up and len(told) == 4)
    assert told == ["port 1 is in use", str(NO_SPACE), "ended at once", ""]
