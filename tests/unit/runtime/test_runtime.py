"""A process ends in one known way, with one clear line."""

import asyncio
import io
import json
import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

from ebbtide import logs, runtime
from ebbtide.errors import Corrupt, EbbtideError, Fenced, Refused, Temporary
from ebbtide.health import serve_health
from ebbtide.metrics import new_registry
from ebbtide.runtime import Process
from ebbtide.settings import ProcessSettings


class Outcome:
    """Exit code and log lines of one run."""

    def __init__(self, body: runtime.Body, grace: float = 5.0) -> None:
        stream = io.StringIO()
        log = logs.setup("info", stream=stream, role="test")
        settings = ProcessSettings(grace_seconds=grace)
        self.code = runtime.run(body, settings=settings, registry=new_registry(), log=log)
        self.lines: list[dict[str, Any]] = [json.loads(x) for x in stream.getvalue().splitlines()]


def raising(error: BaseException) -> Callable[[Process], Any]:
    async def body(process: Process) -> None:
        raise error

    return body


async def until_drained(process: Process) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await process.drain.wait()


async def deaf(process: Process) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.Event().wait()


async def deaf_and_told_twice(process: Process) -> None:
    os.kill(os.getpid(), signal.SIGTERM)
    await process.drain.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.Event().wait()


async def die(error: Exception) -> None:
    raise error


def test_sigterm_drains_and_ends_well() -> None:
    outcome = Outcome(until_drained)
    assert outcome.code == runtime.EXIT_OK
    assert outcome.lines[-1]["event"] == "process ended"


@pytest.mark.parametrize("body", [deaf_and_told_twice, deaf])
def test_a_deaf_body_is_ended_by_force(body: runtime.Body) -> None:
    assert Outcome(body, grace=0.01).code == runtime.EXIT_OVERRAN


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Refused("no such model"), runtime.EXIT_REFUSED),
        (Fenced("epoch 3 is newer"), runtime.EXIT_FENCED),
        (Corrupt("bad frame"), runtime.EXIT_PERMANENT),
        (Temporary("disk full"), runtime.EXIT_TEMPORARY),
    ],
)
def test_an_expected_error_is_one_line_without_a_traceback(error: EbbtideError, code: int) -> None:
    outcome = Outcome(raising(error))
    assert outcome.code == code
    assert outcome.lines[-1]["why"] == str(error)
    assert "Traceback" not in json.dumps(outcome.lines)


def test_a_bug_is_logged_with_its_trace() -> None:
    outcome = Outcome(raising(ZeroDivisionError()))
    assert outcome.code == runtime.EXIT_BUG
    assert "ZeroDivisionError" in outcome.lines[-1]["error"]


def test_a_dead_background_task_ends_the_process() -> None:
    async def body(process: Process) -> None:
        process.spawn(die(Temporary("broker gone")), name="facts")
        await asyncio.Event().wait()

    outcome = Outcome(body)
    assert outcome.code == runtime.EXIT_TEMPORARY
    assert outcome.lines[-1]["why"] == "broker gone"


def test_background_work_is_cancelled_when_the_body_ends() -> None:
    async def body(process: Process) -> None:
        process.spawn(asyncio.sleep(3600), name="beats")

    assert Outcome(body).code == runtime.EXIT_OK


def test_a_taken_health_port_is_refused_clearly() -> None:
    async def body(process: Process) -> None:
        server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            async with serve_health(process.health, process.registry, host="127.0.0.1", port=port):
                pass

    outcome = Outcome(body)
    assert outcome.code == runtime.EXIT_REFUSED
    assert "cannot listen" in outcome.lines[-1]["why"]
