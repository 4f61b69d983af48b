"""The warmed parent: imports what is dear once, then forks a process for each request.

Started by the process runner as `python -m ebbtide_operator.zygote FD MODULE...`, where FD is its
end of a socket pair. It is single-threaded and runs no operation of what it imported, so a fork
is safe. One JSON line per message: `Request` in; `Warm`, `Forked` and `Ended` out. When the
runner is gone the zygote leaves; its children run on.
"""

from __future__ import annotations

import gc
import importlib
import os
import random
import runpy
import select
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec


class Request(msgspec.Struct, frozen=True):
    """Run `module` as `__main__` with exactly `env`; output goes to the end of `log`."""

    ticket: int
    module: str
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    log: str
    folder: str


class Warm(msgspec.Struct, frozen=True, tag="warm"):
    """Everything is imported. `missing`: modules that could not be."""

    missing: tuple[str, ...]


class Forked(msgspec.Struct, frozen=True, tag="forked"):
    """The answer to one request."""

    ticket: int
    pid: int


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A child is over; `status` as waitpid gives it."""

    pid: int
    status: int


Message = Warm | Forked | Ended


def main(arguments: Sequence[str]) -> int:
    """Serve until the runner leaves; in a child, become the requested program."""
    channel = socket.socket(fileno=int(arguments[0]))
    missing = _import(arguments[1:])
    gc.freeze()  # what is shared stays shared: no collection writes to these pages
    request = _serve(channel, missing)
    if request is None:
        return 0
    _become(request, channel)
    return 0


def _import(modules: Sequence[str]) -> tuple[str, ...]:
    missing = []
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    return tuple(missing)


def _serve(channel: socket.socket, missing: tuple[str, ...]) -> Request | None:
    """Fork on request. Returns the request in each child, None in the parent at the end."""
    wake, alarm = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.set_wakeup_fd(alarm, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _say(channel, Warm(missing))
    lines = b""
    while True:
        ready, _, _ = select.select([channel.fileno(), wake], [], [])
        if wake in ready:
            os.read(wake, 4096)
            _reap(channel)
        if channel.fileno() not in ready:
            continue
        heard = channel.recv(1 << 20)
        if not heard:
            return None
        *whole, lines = (lines + heard).split(b"\n")
        for line in whole:
            request = msgspec.json.decode(line, type=Request)
            pid = os.fork()
            if pid == 0:
                os.close(wake)
                return request
            _say(channel, Forked(request.ticket, pid))


def _reap(channel: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        _say(channel, Ended(pid, status))


def _say(channel: socket.socket, message: Message) -> None:
    channel.sendall(msgspec.json.encode(message) + b"\n")


def _become(request: Request, channel: socket.socket) -> None:
    """Leave nothing of the parent but its imports, and run the module."""
    channel.close()
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    _redirect(request.log)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.env)
    random.seed()
    gc.unfreeze()
    sys.argv = [request.module, *request.arguments]
    runpy.run_module(request.module, run_name="__main__", alter_sys=True)


def _redirect(log: str) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(Path(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(nothing, 0)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(nothing)
    os.close(output)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
