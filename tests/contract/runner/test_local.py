"""The process runner starts, watches and ends real processes as pod objects say."""

import asyncio
import dataclasses
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import structlog

from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.cluster_sqlite import open_cluster
from ebbtide.errors import Temporary
from ebbtide.interpreters import sources
from ebbtide.objects import unix_time
from ebbtide.ports import Cluster, Meta, Resource
from ebbtide_operator.keeper import Host, Places
from ebbtide_operator.local import Runner
from ebbtide_operator.nursery import Nursery
from ebbtide_operator.podspec import PodSpec, PodView, view
from ebbtide_operator.processes import Cold, start_time

PROBE = (
    "import http.server, os\n"
    "class H(http.server.BaseHTTPRequestHandler):\n"
    "    def do_GET(self): self.send_response(200); self.end_headers()\n"
    "    def log_message(self, *a): pass\n"
    "http.server.HTTPServer(('127.0.0.1', int(os.environ['EBBTIDE_HEALTH_PORT'])), H)"
    ".serve_forever()\n"
)


class Losing:
    """The object store; the first `lose` writes of a pid do not get through."""

    def __init__(self, real: Cluster) -> None:
        self.real = real
        self.lose = 0
        self.lost: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real, name)

    async def patch_status(
        self, kind: str, namespace: str, name: str, status: dict[str, Any]
    ) -> Resource:
        if "pid" in status and len(self.lost) < self.lose:
            self.lost.append(status["pid"])
            raise Temporary("the object store is locked")
        return await self.real.patch_status(kind, namespace, name, status)


class Machine:
    """One runner over one store; `stop` ends the runner and leaves its processes alone."""

    def __init__(self, cluster: Losing, host: Host) -> None:
        self.cluster = cluster
        self._host = host
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, seen_at: float | None = None) -> None:
        host = dataclasses.replace(self._host, seen_at=seen_at)
        runner = Runner(host=host, log_bytes=1 << 20, log_days=30.0)
        work = (runner.watch(), self._host.nursery.run())
        self._tasks = [asyncio.create_task(w) for w in work]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def add(self, name: str, *command: str, **spec: Any) -> None:
        body = msgspec.to_builtins(PodSpec(command=command, **spec))
        await self.cluster.create(Resource("v1", "Pod", Meta(name=name), spec=body))

    async def pod(self, name: str, until: Callable[[PodView], bool]) -> PodView:
        async with asyncio.timeout(30):
            while not until(pod := view(await self.cluster.get("Pod", "default", name))):
                await asyncio.sleep(0.02)
        return pod

    async def gone(self, name: str) -> None:
        async with asyncio.timeout(30):
            while [p for p in (await self.cluster.list("Pod"))[0] if p.metadata.name == name]:
                await asyncio.sleep(0.02)


@asynccontextmanager
async def a_host(folder: Path, cluster: Any) -> AsyncIterator[Host]:
    places = Places(folder / "logs", folder / "secrets", folder)
    for path in (places.logs, places.secrets):
        path.mkdir(exist_ok=True)
    log = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(50))
    async with httpx.AsyncClient(trust_env=False) as http:
        yield Host(
            cluster=cluster,
            clock=SystemClock(),
            log=log,
            cold=Cold(),
            nursery=Nursery(modules=["json", "no_such_module"], log=log),
            http=http,
            places=places,
        )


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    async with (
        open_cluster(tmp_path / "o.sqlite", clock=SystemClock()) as store,
        a_host(tmp_path, cluster := Losing(store)) as host,
    ):
        machine = Machine(cluster, host)
        machine.start()
        try:
            yield machine
        finally:
            for pod in (await cluster.list("Pod"))[0]:
                await cluster.delete("Pod", "default", pod.metadata.name, grace=0.2)
                await machine.gone(pod.metadata.name)
            await machine.stop()


def python(code: str) -> tuple[str, ...]:
    return ("python", "-c", code)


async def test_a_pod_that_ends_well_succeeds(machine: Machine) -> None:
    await machine.add("a", *python("pass"))
    pod = await machine.pod("a", lambda p: p.finished)
    assert (pod.status.phase, pod.status.exit_code) == ("Succeeded", 0)


async def test_a_failure_keeps_its_code_and_last_lines(machine: Machine) -> None:
    await machine.add("a", *python("print('no disk'); raise SystemExit(7)"))
    pod = await machine.pod("a", lambda p: p.finished)
    assert (pod.status.phase, pod.status.exit_code) == ("Failed", 7)
    assert pod.status.message == "no disk"


async def test_a_killed_pod_names_its_signal(machine: Machine) -> None:
    await machine.add("a", *python("import time; time.sleep(600)"))
    pod = await machine.pod("a", lambda p: p.status.pid > 0)
    os.kill(pod.status.pid, signal.SIGKILL)
    ended = await machine.pod("a", lambda p: p.finished)
    assert (ended.status.signal, ended.status.reason) == (9, "Killed")


async def test_a_pod_is_ready_once_its_probe_answers(machine: Machine) -> None:
    await machine.add("a", *python(PROBE))
    assert (await machine.pod("a", lambda p: p.status.ready)).status.health_port > 0


async def test_a_deleted_pod_gets_sigterm_and_may_finish(machine: Machine, tmp_path: Path) -> None:
    mark = tmp_path / "drained"
    code = (
        "import signal, sys, time, pathlib\n"
        f"signal.signal(15, lambda *_: (pathlib.Path({str(mark)!r}).touch(), sys.exit(0)))\n"
        "print('up', flush=True); time.sleep(600)"
    )
    await machine.add("a", *python(code))
    await wait_for_log(machine, "a", b"up")
    await machine.cluster.delete("Pod", "default", "a", grace=20)
    await machine.gone("a")
    assert mark.exists()


async def test_a_pod_that_ignores_sigterm_is_killed_after_its_grace(machine: Machine) -> None:
    code = "import signal, time; signal.signal(15, signal.SIG_IGN); print('up', flush=True)"
    await machine.add("a", *python(f"{code}; time.sleep(600)"))
    await wait_for_log(machine, "a", b"up")
    pid = (await machine.pod("a", lambda p: p.status.pid > 0)).status.pid
    await machine.cluster.delete("Pod", "default", "a", grace=0.1)
    await machine.gone("a")
    assert not Path(f"/proc/{pid}").exists()


async def test_a_warm_pod_is_forked_with_its_own_environment(machine: Machine) -> None:
    await machine.add("a", "python", "-m", "this", env={"WHO": "me"}, warm=True, probe=False)
    pod = await machine.pod("a", lambda p: p.finished)
    assert (pod.status.phase, pod.status.exit_code) == ("Succeeded", 0)
    assert "Namespaces are one honking great idea" in pod.status.message


async def test_a_secret_reaches_the_process_and_not_the_object(
    machine: Machine, tmp_path: Path
) -> None:
    (tmp_path / "secrets" / "nats").write_text("s3cret\n")
    code = "import os, sys; sys.exit(len(os.environ['PASSWORD']) != 6)"
    await machine.add("a", *python(code), secret_env={"PASSWORD": "nats"})
    pod = await machine.pod("a", lambda p: p.finished)
    assert pod.status.phase == "Succeeded"
    assert b"s3cret" not in msgspec.json.encode(pod.resource)


async def test_a_missing_secret_fails_the_pod_with_its_name(machine: Machine) -> None:
    await machine.add("a", *python("pass"), secret_env={"PASSWORD": "nowhere"})
    pod = await machine.pod("a", lambda p: p.finished)
    assert "nowhere" in pod.status.message


async def test_a_pod_of_another_interpreter_is_run_by_its_python(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "python"
    other.write_text('#!/bin/sh\nprintf "%s %s" "$1" "$PYTHONPATH" > said\n')
    other.chmod(0o755)
    monkeypatch.setenv("EBBTIDE_VLLM_PYTHON", str(other))
    await machine.add("a", *python("pass"), interpreter="vllm", probe=False)
    assert (await machine.pod("a", lambda p: p.finished)).status.phase == "Succeeded"
    assert (tmp_path / "said").read_text() == f"-c {sources()}"


async def test_an_interpreter_that_is_not_there_fails_the_pod_with_the_fix(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    await machine.add("a", *python("pass"), interpreter="vllm")
    pod = await machine.pod("a", lambda p: p.finished)
    assert "make setup-vllm" in pod.status.message


@pytest.mark.parametrize("warm", [False, True])
async def test_no_process_runs_unless_its_pid_is_on_record(machine: Machine, warm: bool) -> None:
    machine.cluster.lose = 3
    await machine.add("a", "python", "-m", "this", warm=warm)
    pod = await machine.pod("a", lambda p: p.finished)
    assert len(machine.cluster.lost) == 3
    assert pod.status.phase == "Succeeded"
    assert pod.status.message.count("Beautiful is better than ugly") == 1
    assert not any(start_time(pid) for pid in machine.cluster.lost)


async def test_a_pod_that_died_while_no_runner_lived_ended_when_the_last_one_did(
    machine: Machine,
) -> None:
    await machine.add("a", *python(PROBE))
    before = await machine.pod("a", lambda p: p.status.ready)
    await machine.stop()
    os.kill(before.status.pid, signal.SIGKILL)
    await until_dead(before.status.pid)
    seen = unix_time(before.status.started_at) + 0.01
    machine.start(seen_at=seen)
    ended = await machine.pod("a", lambda p: p.finished)
    assert unix_time(ended.status.finished_at) == pytest.approx(seen, abs=1e-3)
    assert ended.status.reason == "Unknown"


async def test_the_next_runner_adopts_what_runs(machine: Machine) -> None:
    await machine.add("a", *python(PROBE))
    before = await machine.pod("a", lambda p: p.status.ready)
    await machine.stop()
    machine.start()
    os.kill(before.status.pid, signal.SIGKILL)
    ended = await machine.pod("a", lambda p: p.finished)
    assert ended.status.pid == before.status.pid


async def wait_for_log(machine: Machine, pod: str, line: bytes) -> None:
    await machine.pod(pod, lambda p: p.status.pid > 0)

    async def lines() -> list[bytes]:
        return [text async for text in machine.cluster.logs("default", pod, None, False)]

    await eventually(lambda: contains(lines, line))


async def contains(lines: Callable[[], Awaitable[list[bytes]]], line: bytes) -> bool:
    return line in await lines()


async def eventually(probe: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await probe():
            await asyncio.sleep(0.02)


async def until_dead(pid: int) -> None:
    """A signal takes a moment; the kernel has no start time of what has ended."""
    async with asyncio.timeout(30):
        while start_time(pid) is not None:
            await asyncio.sleep(0.01)
