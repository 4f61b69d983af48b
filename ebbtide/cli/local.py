"""up and down: the whole stack as background processes of this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.status import Status

from ebbtide.cli.ending import fail
from ebbtide.cli.show import print_json
from ebbtide.endpoint import Up, read_up, state_dir

_MODULE = "ebbtide_operator.up"
_SWEEP = "ebbtide_operator.down"
_LOG = "up.log"
_POLL_SECONDS = 0.1


def folder_of(given: Path | None) -> Path:
    """The state folder."""
    return (given or state_dir(os.environ, Path.home())).resolve()


def start(*, port: int, folder: Path | None, timeout: float, as_json: bool) -> None:
    """Start the stack and wait until it is ready."""
    state = folder_of(folder)
    state.mkdir(parents=True, exist_ok=True, mode=0o700)
    running = read_up(state)
    if running is not None and alive(running):
        _told(running, as_json=as_json, how="is running already")
        return
    process = _launch(state, port)
    console = Console(stderr=True)
    with console.status("starting") as shown:
        up = _await(state, process, timeout, shown)
    _told(up, as_json=as_json, how="is ready")


def _launch(state: Path, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", _MODULE, "--state", str(state), "--port", str(port)]
    # A shell's own EBBTIDE_ variables are the client's; services refuse what they do not know.
    environment = {k: v for k, v in os.environ.items() if not k.startswith("EBBTIDE_")}
    with (state / _LOG).open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - our own module
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env=environment,
            start_new_session=True,
        )


def _await(state: Path, process: subprocess.Popen[bytes], timeout: float, shown: Status) -> Up:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        up = read_up(state)
        if up is not None and alive(up):
            if up.ready:
                return up
            shown.update(up.stage or "starting")
        if process.poll() is not None:
            fail(f"could not start: {_last_line(state)}")
        time.sleep(_POLL_SECONDS)
    process.terminate()
    return fail(f"not ready after {timeout:.0f} s; {state / _LOG} says more")


def _last_line(state: Path) -> str:
    lines = (state / _LOG).read_text("utf-8", "replace").strip().splitlines()
    return f"{lines[-1] if lines else 'it said nothing'} (all of it: {state / _LOG})"


def _told(up: Up, *, as_json: bool, how: str) -> None:
    if as_json:
        print_json({"url": up.url, "tokenFile": up.token_file, "stateDir": up.state_dir})
    else:
        print(f"ebbtide {how} at {up.url}\ntoken: {up.token_file}\nstop it with: ebbtide down")


def alive(up: Up) -> bool:
    """Whether the process that wrote up.json still runs."""
    pid = up.pids.get("up")
    if pid is None:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return not _is_zombie(pid)


def _is_zombie(pid: int) -> bool:
    try:
        text = Path(f"/proc/{pid}/stat").read_text("utf-8", "replace")
    except OSError:
        return False
    return text.rpartition(")")[2].split()[:1] == ["Z"]


def stop(*, folder: Path | None, timeout: float) -> None:
    """End the stack and wait for it."""
    state = folder_of(folder)
    up = read_up(state)
    if up is None or (not alive(up) and up.stage == "stopped"):
        print("nothing is running")
        return
    if not alive(up):  # it was killed: what it started may still run
        subprocess.run([sys.executable, "-m", _SWEEP, "--state", str(state)], check=True)  # noqa: S603
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(up.pids["up"], signal.SIGTERM)
    with Console(stderr=True).status("stopping"):
        if not _until(lambda: not alive(up), timeout):
            fail(f"still running after {timeout:.0f} s: process {up.pids['up']}")
    print("stopped")


def _until(holds: Callable[[], bool], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(_POLL_SECONDS)
    return holds()
