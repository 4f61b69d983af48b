"""Tries whether this machine isolates: a program in a cell attempts what it must not be able to."""

from __future__ import annotations

import os

from ebbtide.errors import Refused, Temporary
from ebbtide.sandbox.cell import Cell, find
from ebbtide.sandbox.trial import Limits, Prints, run

_ATTEMPT = """
import os, resource, socket
def fails(attempt):
    try:
        attempt()
    except OSError:
        return True
assert fails(lambda: socket.socket(socket.AF_INET, socket.SOCK_STREAM)), 'it has a network'
assert fails(lambda: open('/usr/x', 'w')), 'it writes to the disk'
assert fails(lambda: os.listdir('/home')) and fails(lambda: os.listdir('/root')), 'it sees homes'
assert not [name for name in os.environ if name not in ('PWD', 'LC_CTYPE')], 'it has variables'
assert len([name for name in os.listdir('/proc') if name.isdigit()]) <= 3, 'it sees processes'
def fork():
    for _ in range(64):
        if os.fork() == 0:
            os.read(hold, 1)
            os._exit(0)
hold, end = os.pipe()
assert fails(fork), 'it forks without end'
print('isolated')
"""
_FIX = "see docs/reward.md; EBBTIDE_SANDBOX=if-possible (the administrator's) runs programs without isolation"


def isolated(python: str = "") -> Cell:
    """This machine's cell, tried; raises Refused where it does not hold."""
    cell = find(python)
    limits = Limits(test_seconds=20.0, wall_seconds=30.0)
    try:
        found = run(_ATTEMPT, (Prints("", "isolated"),), limits=limits, cell=cell)
    except Temporary as error:
        raise Refused(f"{error}{_who()}; {_FIX}", field="sandbox") from None
    if not found or not found[0].passed:
        raise Refused(f"bubblewrap does not isolate here; {_FIX}", field="sandbox")
    return cell


def _who() -> str:
    return " (as nobody, since this is root)" if os.geteuid() == 0 else ""
