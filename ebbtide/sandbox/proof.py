"""Tries whether this machine isolates: a program in a cell attempts what it must not be able to."""

from __future__ import annotations

import os

from ebbtide.errors import Refused, Temporary
from ebbtide.sandbox.cell import Cell, find
from ebbtide.sandbox.trial import Limits, Prints, Result, run

_ATTEMPT = """
import ctypes, os, socket, time
def fails(attempt, *args):
    try:
        attempt(*args)
    except OSError:
        return True
def bomb():
    hold, _ = os.pipe()
    for _ in range(64):
        if os.fork() == 0:
            os.read(hold, 1)
            os._exit(0)
def hoard():
    os.fork(), os.fork()
    held = b'x' * (40 << 20)
    time.sleep(20)
def namespace():
    if ctypes.CDLL(None).unshare(0x10000000):
        raise OSError
holds = {
    'no network': lambda: fails(socket.socket, socket.AF_INET, socket.SOCK_STREAM),
    'a read-only disk': lambda: fails(open, '/usr/x', 'w') and fails(open, '/x', 'w'),
    'no homes': lambda: fails(os.listdir, '/home') and fails(os.listdir, '/root'),
    'no environment': lambda: not set(os.environ) - {'PWD', 'LC_CTYPE'},
    'no other processes': lambda: os.getppid() < 8 and fails(os.listdir, '/proc'),
    'no namespaces': lambda: fails(namespace),
    'bounded processes': lambda: fails(bomb),
    'bounded memory': hoard,
}
print(bool(holds[input()]()))
"""
_CLAIMS = (
    "no network",
    "a read-only disk",
    "no homes",
    "no environment",
    "no other processes",
    "no namespaces",
    "bounded processes",
)
_MEMORY = "bounded memory"
_FIX = "see docs/reward.md; EBBTIDE_SANDBOX=if-possible (the administrator's) runs programs without isolation"


def isolated(python: str = "") -> Cell:
    """This machine's cell, tried; raises Refused where it does not hold."""
    cell = find(python)
    limits = Limits(test_seconds=20.0, wall_seconds=60.0, memory_bytes=96 << 20)
    tests = tuple(Prints(claim, "True") for claim in (*_CLAIMS, _MEMORY))
    try:
        found = run(_ATTEMPT, tests, limits=limits, cell=cell)
    except Temporary as error:
        raise Refused(f"{error}{_who()}; {_FIX}", field="sandbox") from None
    results = found or [Result(passed=False, fault="")] * len(tests)
    broken = [c for c, r in zip(_CLAIMS, results[:-1], strict=True) if not r.passed]
    broken += [_MEMORY] if results[-1].fault != "memory" else []
    if broken:
        detail = f"bubblewrap does not give {', '.join(broken)} here; {_FIX}"
        raise Refused(detail, field="sandbox")
    return cell


def _who() -> str:
    return " (as nobody, since this is root)" if os.geteuid() == 0 else ""
