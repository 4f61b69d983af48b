"""The warmed parent: imports what is dear once, then forks a process for each request.

Started by the process runner as `python -m ebbtide_operator.zygote FD MODULE...`, where FD is its
end of a socket pair. It is single-threaded and runs no operation of what it imported, so a fork
is safe. One JSON line per message: `Fork` and `Go` in; `Warm`, `Forked` and `Ended` out. A child
waits for its Go, which comes once the runner has written down its pid: whatever dies before that,
no process runs that nobody knows of. When the runner is gone the zygote leaves; its children run
on.
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
from contextlib import suppress
from pathlib import Path

import msgspec

_TITLE_BYTES = 15
_MAX_FD = 1 << 16


class Fork(msgspec.Struct, frozen=True, tag="fork"):
    """Run `module` as `__main__` with exactly `env`; output goes to the end of `log`."""

    ticket: int
    module: str
    arguments: tuple[str, ...]
    env: Mapping[str, str]
    log: str
    folder: str
    title: str


class Go(msgspec.Struct, frozen=True, tag="go"):
    """The child with this pid may begin."""

    pid: int


class Warm(msgspec.Struct, frozen=True, tag="warm"):
    """Everything is imported. `missing`: modules that could not be; more than one thread is bad."""

    missing: tuple[str, ...]
    threads: int


class Forked(msgspec.Struct, frozen=True, tag="forked"):
    """The answer to one request."""

    ticket: int
    pid: int


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """A child is over; `status` as waitpid gives it."""

    pid: int
    status: int


Command = Fork | Go
Message = Warm | Forked | Ended


def main(arguments: Sequence[str]) -> int:
    """Serve until the runner leaves; in a child, become the requested program."""
    channel = socket.socket(fileno=int(arguments[0]))
    missing = _import(arguments[1:])
    gc.collect()
    gc.freeze()  # what is shared stays shared: no collection ever writes to these pages
    threads = len(list(Path("/proc/self/task").iterdir()))
    request = Parent(channel).serve(Warm(missing, threads))
    if request is not None:
        runpy.run_module(request.module, run_name="__main__", alter_sys=True)
    return 0


def _import(modules: Sequence[str]) -> tuple[str, ...]:
    missing = []
    for name in modules:
        try:
            importlib.import_module(name)
        except ImportError:
            missing.append(name)
    return tuple(missing)


class Parent:
    """The loop of the parent. `held`: by pid, the pipe on which a child waits for its Go."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._wake, self._alarm = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._held: dict[int, int] = {}

    def serve(self, hello: Warm) -> Fork | None:
        """Obey until the runner leaves. Returns the request in each child, None in the parent."""
        signal.set_wakeup_fd(self._alarm, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._say(hello)
        lines = b""
        while True:
            ready, _, _ = select.select([self._channel.fileno(), self._wake], [], [])
            if self._wake in ready:
                os.read(self._wake, 4096)
                self._reap()
            if self._channel.fileno() not in ready:
                continue
            heard = self._channel.recv(1 << 20)
            if not heard:
                return None
            *whole, lines = (lines + heard).split(b"\n")
            for line in whole:
                mine = self._obey(msgspec.json.decode(line, type=Command))
                if mine is not None:
                    return mine

    def _obey(self, command: Command) -> Fork | None:
        if isinstance(command, Go):
            if command.pid in self._held:
                with suppress(BrokenPipeError):  # it was killed while it waited
                    os.write(self._held[command.pid], b"g")
                os.close(self._held.pop(command.pid))
            return None
        waits, tells = os.pipe()
        pid = os.fork()
        if pid == 0:
            _become(command, waits)
            return command
        os.close(waits)
        self._held[pid] = tells
        self._say(Forked(command.ticket, pid))
        return None

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if pid in self._held:
                os.close(self._held.pop(pid))
            self._say(Ended(pid, status))

    def _say(self, message: Message) -> None:
        self._channel.sendall(msgspec.json.encode(message) + b"\n")


# --- the child ------------------------------------------------------------------------------------


def _become(request: Fork, waits: int) -> None:
    """Leave nothing of the parent but its imports; return once the runner says Go."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    _redirect(request.log, waits)
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.env)
    sys.argv = [request.module, *request.arguments]
    Path("/proc/self/comm").write_text(request.title[:_TITLE_BYTES])
    _reseed()
    if os.read(3, 1) != b"g":
        os._exit(1)  # the runner died before it knew this process
    os.close(3)


def _redirect(log: str, waits: int) -> None:
    """Standard streams, and the pipe as descriptor 3; everything else of the parent is closed."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(Path(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream, source in ((0, nothing), (1, output), (2, output), (3, waits)):
        if source != stream:
            os.dup2(source, stream)
    os.closerange(4, _MAX_FD)


def _reseed() -> None:
    """Siblings must not draw the same numbers."""
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.seed()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
