"""The worker's parent: kills all that a worker left behind, also when the scorer was killed.

What a reward function starts may leave its process group and its parent (setsid, a double fork),
but not its line of descent: the guard is a subreaper (prctl(2)), so whoever is orphaned below it
becomes its child. It waits for the end of the worker or of the scorer, whichever is first, kills
all that is below it, and tells how the worker ended.
"""

from __future__ import annotations

import ctypes
import os
import signal

from services.reward.engine.offspring import kill_below

_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER
_HEARD = (signal.SIGCHLD, signal.SIGTERM)


def fork() -> int:
    """Become a guard; returns the pid of the worker, and 0 in the worker.

    The guard gets SIGTERM when its parent dies, the worker SIGKILL when the guard does. Raises
    SystemExit where the parent is dead already.
    """
    prctl = ctypes.CDLL(None).prctl
    scorer = os.getppid()
    prctl(_ADOPT_ORPHANS, 1)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
    prctl(_DIE_WITH_PARENT, signal.SIGTERM)
    guard = os.getpid()
    worker = os.fork() if os.getppid() == scorer else -1
    if worker == 0:
        prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    if worker < 0 or (worker == 0 and os.getppid() != guard):
        raise SystemExit(0)
    return worker


def watch(worker: int) -> int:
    """Wait for the end of the worker or the scorer, kill all that is left below.

    Returns how the worker ended, a negative number for a signal.
    """
    _let_go_of_pipes()
    ended = _wait(worker)
    me = os.getpid()
    while True:
        kill_below(me)
        try:
            pid, status = os.waitpid(-1, 0)
        except ChildProcessError:
            return os.waitstatus_to_exitcode(ended)
        ended = status if pid == worker else ended


def _let_go_of_pipes() -> None:
    """The scorer sees the worker's end by the end of its pipe, which nobody else may hold."""
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(null, 1)


def _wait(worker: int) -> int:
    """The worker's status, 0 if the scorer ended first; reaps the orphans that end meanwhile."""
    while signal.sigwait(_HEARD) != signal.SIGTERM:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            if found[0] == worker:
                return found[1]
    return 0
