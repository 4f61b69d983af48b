"""Programs that mean harm: none gets out, none is graded better than it is, none outstays."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from pathlib import Path

import msgspec
import psutil
import pytest

from ebbtide.errors import Refused
from ebbtide.sandbox import cell as cells
from ebbtide.sandbox import proof
from ebbtide.sandbox.cell import Cell
from ebbtide.sandbox.trial import Asserts, Limits, Prints, Result, run

RIGHT, WRONG = Result(passed=True, fault=""), Result(passed=False, fault="")
TWO = Prints("1\n", "2")
PATIENT = Limits(test_seconds=40.0, wall_seconds=60.0, memory_bytes=128 << 20)
QUICK = Limits(test_seconds=1.0, wall_seconds=60.0, memory_bytes=128 << 20)


@pytest.fixture(scope="module")
def cell() -> Cell:
    return proof.isolated()


def tried(
    cell: Cell, program: str, test: Asserts | Prints = TWO, limits: Limits = PATIENT
) -> object:
    found = run(program, (test,), limits=limits, cell=cell)
    return found and found[0]


def reports(cell: Cell, body: str) -> str:
    """What a program that may do anything says of its `body`, which defines `found`."""
    test = Prints("", "told")
    program = f"{body}\nassert not found, found\nprint('told')"
    return "nothing" if tried(cell, program, test) == RIGHT else "something"


def test_right_and_wrong_programs_are_told_apart(cell: Cell) -> None:
    double = "print(int(input()) * 2)"
    assert run(double, (TWO, Prints("2", "5")), limits=PATIENT, cell=cell) == (RIGHT, WRONG)
    add = "def f(x): return {x: (x, [x])}"
    tests = (Asserts("assert f(1) == {1: (1, [1])}"), Asserts("assert f(1) == {1: [1, [1]]}"))
    assert run(add, tests, limits=PATIENT, cell=cell) == (RIGHT, WRONG)


def test_a_test_may_expect_an_exception(cell: Cell) -> None:
    test = "try:\n f()\nexcept ValueError as error:\n assert 'no' in str(error)\nelse:\n assert 0"
    assert tried(cell, "def f(): raise ValueError('no')", Asserts(test)) == RIGHT


def test_a_fork_bomb_is_bounded_and_leaves_nothing(cell: Cell) -> None:
    before = set(psutil.pids())
    bomb = "import os\nwhile True:\n try: os.fork()\n except OSError: pass"
    assert tried(cell, bomb, TWO, QUICK) == Result(passed=False, fault="timeout")
    assert _ended(p for p in set(psutil.pids()) - before if _uid(p) == _cell_user())
    counts = "import os\nn=0\ntry:\n while True:\n  if not os.fork(): os.read(os.pipe()[0], 1)\n  n+=1\nexcept OSError: print(n)"
    assert tried(cell, counts, Prints("", "7")) == RIGHT


def _cell_user() -> int:
    return 65534 if os.geteuid() == 0 else os.geteuid()


def _ended(pids: Iterable[int]) -> bool:
    """Whether all of them end: who is killed needs a moment."""
    known = [psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)]
    return not psutil.wait_procs(known, timeout=20)[1]


def _uid(pid: int) -> int:
    try:
        return int(psutil.Process(pid).uids().real)
    except psutil.NoSuchProcess:
        return -1


def test_memory_is_bounded_for_one_process_and_for_all(cell: Cell) -> None:
    assert tried(cell, "x = bytearray(1 << 40)") == WRONG
    many = "import os, time\nfor _ in range(2): os.fork()\nx = b'x' * (40 << 20)\ntime.sleep(60)"
    assert tried(cell, many) == Result(passed=False, fault="memory")


def test_the_disk_is_read_only_and_scratch_is_bounded(cell: Cell) -> None:
    body = """
import os
found = []
for path in ('/usr/x', '/etc/x', '/x', '/dev/shm/x', '/proc/sys/kernel/hostname', '/sandbox/x'):
    try:
        open(path, 'w').write('x'); found.append(path)
    except OSError: pass
size = 0
try:
    for name in range(64):
        with open(f'/tmp/{name}', 'wb') as file: size += file.write(bytes(4 << 20))
    found.append(size)
except OSError: pass
for name in os.listdir('/tmp'): os.remove(name)  # what it says needs room too
"""
    assert reports(cell, body) == "nothing"


def test_no_network_of_any_kind_is_reached(cell: Cell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        body = f"""
import socket
found = []
for family in (socket.AF_INET, socket.AF_INET6, getattr(socket, 'AF_VSOCK', 40), 16):
    try:
        socket.socket(family, socket.SOCK_STREAM); found.append(family)
    except OSError: pass
try: socket.create_connection(('127.0.0.1', {port}), 1); found.append('connected')
except OSError: pass
"""
        assert reports(cell, body) == "nothing"


def test_environment_homes_and_other_processes_are_hidden(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "secret")
    body = f"""
import os
found = [name for name in os.environ if name not in ('PWD', 'LC_CTYPE')]
found += [p for p in ('/home', '/root', '/run', '/var', '{Path.cwd()}') if os.path.exists(p)]
found += [p for p in ('/proc', '/sys', '/var/run/secrets') if os.path.exists(p)]
"""
    assert reports(cell, body) == "nothing"


def test_orphans_of_a_program_count_too(cell: Cell) -> None:
    orphan = "import os, time\nif os.fork(): os._exit(0)\nx = b'x' * (60 << 20)\ntime.sleep(60)"
    program = f"import subprocess, sys, time\nfor _ in range(3):\n subprocess.run([sys.executable, '-c', {orphan!r}])\ntime.sleep(9)\nprint(2)"
    limits = msgspec.structs.replace(QUICK, test_seconds=40.0)
    assert tried(cell, program, TWO, limits) == Result(passed=False, fault="memory")


def test_an_output_flood_is_cut(cell: Cell) -> None:
    flood = "while True: print('x' * 65536)"
    assert tried(cell, flood) in (WRONG, Result(passed=False, fault="output"))
    assert tried(cell, "def f(): return 'x' * (4 << 20)", Asserts("f()")) == Result(
        passed=False, fault="output"
    )


@pytest.mark.parametrize(
    "program",
    [
        "import os; os._exit(0)",
        "import sys; sys.exit(0)",
        'print(\'{"nonce": "", "results": [[true, ""]]}\')',
        "import builtins, json\nbuiltins.len = lambda x: 1\njson.dumps = lambda *a: '{}'\nraise SystemExit",
        "class Same:\n def __eq__(self, other): return True\ndef f(x): return Same()",
        "def f(x): return 3\ndef print(*a): pass\ndef AssertionError(*a): pass\ndef isinstance(*a): return True",
        "import sys\nsys.modules['builtins'].__dict__['AssertionError'] = None\ndef f(x): return 0",
        "import os, signal\ndef f(x): os.kill(os.getppid(), signal.SIGKILL)",
        "import os, signal\ndef f(x): os.kill(-1, signal.SIGKILL)",
    ],
)
@pytest.mark.parametrize("test", [TWO, Asserts("assert f(1) == 2")])
def test_who_cheats_the_grader_gains_nothing(
    cell: Cell, program: str, test: Asserts | Prints
) -> None:
    assert tried(cell, program, test) in (WRONG, None)


def test_the_grader_cannot_be_looked_into_or_written_for(cell: Cell) -> None:
    body = """
import ctypes, os
found = []
ptrace = ctypes.CDLL(None).ptrace
if ptrace(16, os.getppid(), 0, 0) == 0: found.append('traced')
for number in range(3, 64):
    try:
        os.write(number, b'{"nonce": "", "results": [[true, ""]]}\\n'); found.append(number)
    except OSError: pass
"""
    assert reports(cell, body) == "nothing"


def test_no_further_namespace_is_made(cell: Cell) -> None:
    body = """
import ctypes, os
libc, found = ctypes.CDLL(None), []
if libc.unshare(0x10000000) == 0: found.append('unshare')
clone = 56 if os.uname().machine == 'x86_64' else 220
for flag in (0x10000000, 0x20000, 0x40000000):
    pid = libc.syscall(clone, flag | 17, 0, 0, 0, 0)
    if pid == 0: os._exit(0)
    if pid > 0: found.append(hex(flag))
"""
    assert reports(cell, body) == "nothing"


def test_calls_that_no_namespace_holds_back_are_refused(cell: Cell) -> None:
    body = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def made(number, *args): return libc.syscall(number, *args) >= 0
x86 = os.uname().machine == 'x86_64'
calls = (319, 29, 272, 321, 425, 101) if x86 else (279, 194, 97, 280, 425, 117)
found = [n for n in calls if made(n, 0, 4096, 0o1600, 0, 0)]
"""
    assert reports(cell, body) == "nothing"


def test_what_one_test_leaves_does_not_reach_the_next(cell: Cell) -> None:
    program = """
import os, time
time.sleep(0.2)
if os.path.exists('/tmp/left'): print('met')
open('/tmp/left', 'w').close()
while os.fork() == 0:
    open('/tmp/left', 'w').close()
    time.sleep(0.05)
"""
    tests = (Prints("", ""), Prints("", ""))
    assert run(program, tests, limits=PATIENT, cell=cell) == (RIGHT, RIGHT)


def test_all_ends_with_the_clock(cell: Cell) -> None:
    limits = Limits(test_seconds=60.0, wall_seconds=0.3)
    sleeper = "import time; time.sleep(60)"
    assert tried(cell, sleeper, TWO, limits) == Result(passed=False, fault="timeout")


def test_processor_time_is_bounded(cell: Cell) -> None:
    limits = Limits(cpu_seconds=1, test_seconds=60.0, wall_seconds=60.0)
    for test in (TWO, Asserts("f()")):
        found = tried(cell, "while True: pass", test, limits)
        assert found == Result(passed=False, fault="timeout")


def test_without_isolation_a_program_still_has_limits() -> None:
    bare = Cell(cells.interpreter())
    assert tried(bare, "print(int(input()) * 2)") == RIGHT
    assert tried(bare, "while True: pass", TWO, QUICK) == Result(passed=False, fault="timeout")
    assert tried(bare, "x = bytearray(1 << 40)") == WRONG


def test_a_machine_that_does_not_isolate_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Refused, match="apt-get install bubblewrap"):
        proof.isolated()
    fake = tmp_path / "bwrap"
    fake.write_text('#!/bin/sh\nwhile [ $1 != -- ]; do shift; done; shift; exec "$@"\n')
    fake.chmod(0o755)
    with pytest.raises(Refused, match="EBBTIDE_SANDBOX"):
        proof.isolated()
