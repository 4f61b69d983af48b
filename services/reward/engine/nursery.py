"""Where workers come from: a process that loads what judges, and forks itself for each worker.

`python -m services.reward.engine.nursery MODULE FD warm|bare`. A worker that died is replaced
within milliseconds, because nothing is imported again. `bare`: each worker loads for itself, which
is for what does not outlive a fork (threads, a model on a device). The nursery itself judges
nothing. Orders come on socket FD: each brings the worker's channel and a socket for what its guard
has to tell. The process that is started is the guard of all: when it ends, everything ends.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType

from ebbtide.errors import Refused
from services.reward.engine import guard
from services.reward.engine.bench import Bench
from services.reward.engine.frames import (
    STATUS,
    Batch,
    Open,
    Ready,
    Setup,
    Unfit,
    read_frame,
    write_frame,
)

Load = Callable[[Setup], Bench]


def main() -> int:
    """The exit status of the guard and, in its child, of the nursery."""
    module, control, how = sys.argv[1:]
    nursery = guard.fork()
    if nursery:
        os.close(int(control))
        code = guard.watch(nursery)
        return code if code >= 0 else 128 - code
    return _run(module, socket.socket(fileno=int(control)), warm=how == "warm")


def _run(module: str, orders: socket.socket, *, warm: bool) -> int:
    """Load, say so, and fork until the orders end."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    setup = read_frame(sys.stdin.buffer)
    assert isinstance(setup, Setup)
    make: Callable[[], Bench] = partial(importlib.import_module(module).load, setup)
    try:
        bench = make() if warm else None
    except (Refused, ImportError) as error:
        write_frame(out, Unfit(str(error)))
        return 1
    write_frame(out, Open(threads=_threads() > 1))
    out.close()
    gc.freeze()  # so that collections in workers do not copy what all share
    signal.signal(signal.SIGCHLD, _reap)
    ready = make if bench is None else partial(_as_it_is, bench)
    while order := socket.recv_fds(orders, 1, 2)[1]:
        _fork(orders, order, ready)
    return 0


def _as_it_is(bench: Bench) -> Bench:
    return bench


def _threads() -> int:
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def _reap(_number: int, _frame: FrameType | None) -> None:
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _fork(orders: socket.socket, order: list[int], make: Callable[[], Bench]) -> None:
    """One more worker, below a guard of its own."""
    channel, told = order
    if os.fork() == 0:
        status = 1
        try:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            orders.close()
            status = _guarded(channel, told, make)
        except (SystemExit, ConnectionError):  # the scorer has ended meanwhile
            pass
        except BaseException:  # noqa: BLE001 - nothing may go on as a second nursery
            traceback.print_exc()
        finally:
            with suppress(OSError):
                sys.stdout.flush()
            os._exit(status)
    os.close(channel)
    os.close(told)


def _guarded(channel: int, told: int, make: Callable[[], Bench]) -> int:
    """In the guard: tells its pid and, at the end, the worker's status. In its child: work."""
    worker = guard.fork()
    if worker == 0:
        os.close(told)
        return _work(channel, make)
    os.close(channel)
    with suppress(OSError):  # the scorer hears no more: it ends, or gave the worker up
        os.write(told, STATUS.pack(os.getpid()))
    status = guard.watch(worker)
    with suppress(OSError):
        os.write(told, STATUS.pack(status))
    return 0


def _work(channel: int, make: Callable[[], Bench]) -> int:
    """Say Ready, judge until the channel closes. What functions print goes to standard error."""
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    source, out = os.fdopen(channel, "rb"), os.fdopen(os.dup(channel), "wb", buffering=0)
    # The scorer sees a worker's end by that of its channel: what functions fork must not hold it.
    os.register_at_fork(after_in_child=source.close)
    os.register_at_fork(after_in_child=out.close)
    try:
        bench = make()
    except (Refused, ImportError) as error:
        write_frame(out, Unfit(str(error)))
        return 1
    _part_ways()
    bench.begin()
    write_frame(out, Ready(dict(bench.versions)))
    while isinstance(batch := read_frame(source), Batch):
        for judged in bench.judge(batch.answers):
            write_frame(out, judged)
    return 0


def _part_ways() -> None:
    """Workers of one nursery draw different numbers; `random` sees to that by itself."""
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed()


if __name__ == "__main__":
    sys.exit(main())
