"""The platform on one machine: it starts, survives, is not started twice, and leaves its data."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import httpx
import pytest

from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.cluster_sqlite import open_cluster
from ebbtide.endpoint import Up, read_up
from ebbtide.ports import Meta, Resource
from tests.e2e.processes import alive

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
SLEEPER = {"command": ["python", "-c", "import time; time.sleep(900)"], "probe": False}


class Platform:
    """`up` and `down` as a user starts them."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self._supervisors: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        command = [sys.executable, "-m", "ebbtide_operator.up", "--state", str(self.state)]
        before = self.up().pids.get("up")
        with (self.state / "up.log").open("ab") as log:
            supervisor = subprocess.Popen([*command, "--port", "0"], stdout=log, stderr=log)
        self._supervisors.append(supervisor)
        self.until(lambda: self.up().ready and self.up().pids["up"] != before)

    def kill(self) -> None:
        """End the supervisor alone, as a crash does."""
        self._supervisors[-1].kill()
        self._supervisors[-1].wait()

    def down(self) -> str:
        said = self.run("down").stdout.strip()
        for supervisor in self._supervisors:
            supervisor.wait()
        return said

    def up(self) -> Up:
        return read_up(self.state) or Up(url="", token_file="", state_dir="")

    def run(self, module: str, *more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", f"ebbtide_operator.{module}", "--state", str(self.state)]
        return subprocess.run([*command, *more], capture_output=True, text=True, check=False)

    def until(self, holds: Callable[[], bool], seconds: float = 120.0) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, (self.state / "up.log").read_text()[-3000:]
            time.sleep(0.1)

    def answers(self) -> bool:
        try:
            return httpx.get(f"{self.up().url}/healthz", timeout=20.0).status_code < 500
        except httpx.HTTPError:
            return False

    def add_pod(self, name: str) -> None:
        asyncio.run(self._add(Resource("v1", "Pod", Meta(name=name), spec=SLEEPER)))
        self.until(lambda: self.pod(name).get("phase") == "Running")

    async def _add(self, pod: Resource) -> None:
        async with open_cluster(self.state / "cluster.sqlite", clock=SystemClock()) as cluster:
            await cluster.create(pod)

    def pod(self, name: str) -> dict[str, object]:
        return dict(asyncio.run(self._get(name)).status)

    async def _get(self, name: str) -> Resource:
        async with open_cluster(self.state / "cluster.sqlite", clock=SystemClock()) as cluster:
            return await cluster.get("Pod", "default", name)


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    found = Platform(tmp_path_factory.mktemp("state"))
    found.start()
    yield found
    found.down()


def test_the_token_is_private_and_not_in_the_public_file(platform: Platform) -> None:
    file = Path(platform.up().token_file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().strip() not in (platform.state / "up.json").read_text()


def test_a_second_start_says_where_the_first_is(platform: Platform) -> None:
    second = platform.run("up", "--port", "0")
    assert second.returncode == 2
    assert f"is up already at {platform.up().url}" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_taken_port_is_refused_with_a_way_out(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        answer = Platform(tmp_path).run("up", "--port", str(port))
    assert answer.returncode == 2
    assert f"port {port} on 127.0.0.1 is in use; choose another with --port" in answer.stderr
    assert "Traceback" not in answer.stderr


@pytest.mark.parametrize("child", ["runner", "operator", "gateway", "nats", "valkey"])
def test_a_part_that_dies_is_started_again(platform: Platform, child: str) -> None:
    platform.until(lambda: child in platform.up().pids)
    old = platform.up().pids[child]
    with suppress(ProcessLookupError):  # one that a part killed before took along
        os.kill(old, signal.SIGKILL)
    platform.until(lambda: platform.up().pids.get(child, old) != old)
    platform.until(platform.answers)


def test_pods_outlive_their_supervisor_and_end_with_the_platform(tmp_path: Path) -> None:
    platform = Platform(tmp_path)
    platform.start()
    platform.add_pod("p")
    first = platform.pod("p")
    platform.kill()
    platform.start()
    platform.until(platform.answers)
    assert platform.pod("p") == first
    assert platform.down() == "stopped"
    ended = platform.pod("p")
    assert (ended["phase"], ended["reason"]) == ("Failed", "NodeShutdown")
    assert ended["finishedAt"]
    assert not alive(int(str(first["pid"])))
    assert json.loads((tmp_path / "up.json").read_text())["stage"] == "stopped"


def test_down_sweeps_what_a_killed_supervisor_left(tmp_path: Path) -> None:
    platform = Platform(tmp_path)
    platform.start()
    pids = dict(platform.up().pids)
    platform.kill()
    assert platform.down() == "stopped"
    left = [name for name, pid in pids.items() if alive(pid)]
    assert left == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_demonstration_that_is_ended_brings_its_stack_down(
    tmp_path: Path, number: signal.Signals
) -> None:
    """Also where a shell started it in the background, and so with SIGINT ignored."""
    command = f"trap '' INT; exec {sys.executable} -m ebbtide.demo --out {tmp_path}"
    platform = Platform(tmp_path / "state")
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "HOME": str(tmp_path)}
    demo = subprocess.Popen(["sh", "-c", command], env=environment, stdout=subprocess.DEVNULL)
    try:
        platform.until(lambda: "gateway" in platform.up().pids or demo.poll() is not None)
        pids = platform.up().pids
        demo.send_signal(number)
        assert demo.wait(150) == 128 + number
        platform.until(lambda: not any(map(alive, pids.values())))
        assert platform.up().stage == "stopped"
    finally:
        demo.kill()
        platform.down()
