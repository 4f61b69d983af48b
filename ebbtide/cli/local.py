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

import typer
from rich.console import Console
from rich.status import Status

from ebbtide import lock
from ebbtide.cli.ending import FAILED, fail, say
from ebbtide.cli.show import print_json
from ebbtide.endpoint import UP_LOG, Up, damage, make_state_dir, read_up, state_dir
from ebbtide.last_words import sentence

_MODULE = "ebbtide_operator.up"
_SWEEP = "ebbtide_operator.down"
_SERVERS = "servers"
"""Folder that every start makes."""
_POLL_SECONDS = 0.1


def folder_of(given: Path | None) -> Path:
    """The state folder."""
    return (given or state_dir(os.environ, Path.home())).resolve()


def start(*, port: int, folder: Path | None, timeout: float, as_json: bool) -> None:
    """Start the stack and wait until it is ready."""
    state = folder_of(folder)
    make_state_dir(state)
    _say_damage(state)
    if up := running(state):
        told(up, as_json=as_json, how="is running already")
        return
    process = _launch(state, port)
    try:
        with Console(stderr=True).status("starting") as shown:
            up = _await(state, process, timeout, shown)
    except BaseException:  # Ctrl-C too: what has not started yet is known to nobody else
        process.terminate()
        raise
    told(up, as_json=as_json, how="is ready")


def _launch(state: Path, port: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", _MODULE, "--state", str(state), "--port", str(port)]
    # The supervisor hands on what it knows of our variables, and no other: many are the client's.
    with (state / UP_LOG).open("ab") as log:
        return subprocess.Popen(  # noqa: S603 - our own module
            command,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _await(state: Path, process: subprocess.Popen[bytes], timeout: float, shown: Status) -> Up:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        up = read_up(state)
        if up is not None and up.pids.get("up") == process.pid:
            if up.ready:
                return up
            shown.update(up.stage or "starting")
        if process.poll() is not None:
            fail(f"could not start: {_last_line(state)}")
        time.sleep(_POLL_SECONDS)
    return fail(f"not ready after {timeout:.0f} s; {state / UP_LOG} says more")


def _last_line(state: Path) -> str:
    said = sentence((state / UP_LOG).read_text("utf-8", "replace"))
    return f"{said or 'it said nothing'} (all of it: {state / UP_LOG})"


def told(up: Up, *, as_json: bool, how: str) -> None:
    """Say where the stack is, for people or programs."""
    if as_json:
        print_json({"url": up.url, "tokenFile": up.token_file, "stateDir": up.state_dir})
    else:
        page = f"page: {up.url}/ui (asks for the token)"
        print(
            f"ebbtide {how} at {up.url}\n{page}\ntoken: {up.token_file}\nstop it with: ebbtide down"
        )


def running(state: Path) -> Up | None:
    """What runs in the state folder: up.json, if the process that wrote it holds the lock.

    Its pid alone would not do: after a crash another process may bear it.
    """
    pid, up = lock.holder(state), read_up(state)
    return up if pid and up and up.pids.get("up") == pid else None


def stop(*, folder: Path | None, timeout: float) -> None:
    """End the stack and wait for it."""
    state = folder_of(folder)
    pid = lock.holder(state)
    if pid is None:
        _sweep(state)
        return
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    with Console(stderr=True).status("stopping"):
        if not _until(lambda: lock.holder(state) != pid, timeout):
            fail(f"still running after {timeout:.0f} s: process {pid}")
    print("stopped")


def _sweep(state: Path) -> None:
    """End what a killed supervisor has left: it may still run."""
    _say_damage(state)
    up = read_up(state)
    nothing = up.stage == "stopped" if up else not (state / _SERVERS).is_dir()
    if nothing:
        print("nothing is running")
        return
    command = [sys.executable, "-m", _SWEEP, "--state", str(state)]
    if subprocess.run(command, check=False).returncode:  # noqa: S603 - it has said why
        raise typer.Exit(FAILED)


def _say_damage(state: Path) -> None:
    if words := damage(state):
        say(f"{words}: taken as if nothing had written it")


def _until(holds: Callable[[], bool], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if holds():
            return True
        time.sleep(_POLL_SECONDS)
    return holds()
