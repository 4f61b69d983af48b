"""Inside the cell: puts a program to its tests and says on its own descriptor which it passed.

Started as a script; needs the standard library alone. The program runs in a process of its own
(`candidate.py`, or plainly where tests are inputs and outputs), which can neither look into this
one (not dumpable, prctl(2)) nor hold the descriptor of the verdict. All of it is killed after each
test. How much memory it holds is looked at from outside the cell (`ebbtide.sandbox.memory`), which
kills it.
"""

from __future__ import annotations

import builtins
import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

_NOT_DUMPABLE = 4  # PR_SET_DUMPABLE
_LOOK_SECONDS = 0.02
_HERE = Path(__file__).parent
_INIT, _TESTER = 1, 2
"""Numbers in a cell of bubblewrap's init and of this process."""

Spawn = Callable[..., "subprocess.Popen[bytes]"]


class Fault(BaseException):
    """The program broke a limit; no `except Exception` of a test catches it."""


class Watch:
    """Looks every few milliseconds whether a limit is broken; then raises Fault where it is."""

    def __init__(self, limits: dict[str, Any], *, alone: bool) -> None:
        self._limits = limits
        self._alone = alone
        self._until = 0.0
        self._before = 0.0
        self.output: int | None = None
        self.program = 0
        signal.signal(signal.SIGALRM, self._look)

    def start(self) -> None:
        """A test begins."""
        self._until = time.monotonic() + self._limits["test_seconds"]
        self._before = _spent()
        signal.setitimer(signal.ITIMER_REAL, _LOOK_SECONDS, _LOOK_SECONDS)

    def stop(self) -> None:
        """It has ended: kill what is left of the program."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        program, self.program, self.output = self.program, 0, None
        with suppress(ProcessLookupError):
            if self._alone:
                os.kill(-1, signal.SIGKILL)  # all in this cell but this process and its init
            elif program:
                os.killpg(program, signal.SIGKILL)

    def _look(self, *_: object) -> None:
        if time.monotonic() > self._until:
            raise Fault("timeout")
        if self.output is not None and os.fstat(self.output).st_size > self._limits["output_bytes"]:
            raise Fault("output")

    def judge(self, status: int) -> None:
        """Raise Fault if the program ended with `status` because it broke a limit."""
        long = _spent() - self._before >= self._limits["cpu_seconds"]
        if status == -signal.SIGXCPU or (status == -signal.SIGKILL and long):
            raise Fault("timeout")
        if status == -signal.SIGKILL:  # from outside
            raise Fault("memory")


def _spent() -> float:
    """Processor time of all programs that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _limit(limits: dict[str, Any], *, alone: bool) -> None:
    """Bind the process that will be the program."""
    wanted = {
        resource.RLIMIT_AS: limits["memory_bytes"],
        resource.RLIMIT_FSIZE: limits["file_bytes"],
        resource.RLIMIT_NOFILE: 64,
        resource.RLIMIT_CORE: 0,
    }
    if alone:  # elsewhere the user's other processes count too
        wanted[resource.RLIMIT_NPROC] = limits["processes"] + 2
    for kind, most in wanted.items():
        bound = _allowed(kind, most)
        resource.setrlimit(kind, (bound, bound))
    seconds = limits["cpu_seconds"]
    hard = _allowed(resource.RLIMIT_CPU, seconds + 1)
    resource.setrlimit(resource.RLIMIT_CPU, (min(seconds, hard), hard))  # SIGXCPU, then SIGKILL


def _allowed(kind: int, most: int) -> int:
    """`most`, or the limit that this process has itself."""
    hard = resource.getrlimit(kind)[1]
    return most if hard == resource.RLIM_INFINITY else min(most, hard)


class Functions:
    """The program's functions as a test sees them: names that call into the other process."""

    def __init__(self, program: str, *, spawn: Spawn, watch: Watch, most: int) -> None:
        calls, self._calls = os.pipe()
        self._answers, answers = os.pipe()
        self._most = most
        self._heard = b""
        self._watch = watch
        script = str(_HERE / "candidate.py")
        self._process = spawn(
            [script, str(calls), str(answers)], pass_fds=(calls, answers), stdin=subprocess.DEVNULL
        )
        os.close(calls)
        os.close(answers)
        watch.program = self._process.pid
        self._say(program)
        self.names = [str(name) for name in self._hear()["ready"]]

    def close(self) -> None:
        os.close(self._calls)
        os.close(self._answers)

    def __getitem__(self, name: str) -> Callable[..., Any]:
        def call(*args: Any, **more: Any) -> Any:
            self._say({"name": name, "args": encode(args), "kwargs": encode(more)})
            reply = self._hear()
            if "raise" in reply:
                kind, words = reply["raise"]
                raise _exception(kind)(words)
            return decode(reply["value"])

        return call

    def _say(self, message: object) -> None:
        data = json.dumps(message).encode() + b"\n"
        while data:
            data = data[os.write(self._calls, data) :]

    def _hear(self) -> dict[str, Any]:
        while b"\n" not in self._heard:
            more = os.read(self._answers, 65536)
            if not more:
                self._explain()
            self._heard += more
            if len(self._heard) > self._most:
                raise Fault("output")
        line, _, self._heard = self._heard.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found

    def _explain(self) -> NoReturn:
        self._watch.judge(self._process.wait())
        raise EOFError("the program ended")


def _exception(name: str) -> type[Exception]:
    """The built-in exception of that name, for tests that expect one."""
    kind = getattr(builtins, str(name), None)
    return kind if isinstance(kind, type) and issubclass(kind, Exception) else RuntimeError


def asserts(test: dict[str, str], program: str, *, spawn: Spawn, watch: Watch, most: int) -> bool:
    """Whether the test's code runs to its end; its built-in names are never the program's."""
    functions = Functions(program, spawn=spawn, watch=watch, most=most)
    try:
        own = set(dir(builtins))
        names = {n: functions[n] for n in functions.names if n not in own and n.isidentifier()}
        exec(compile(test["code"], "test", "exec"), names | {"__name__": "test"})  # noqa: S102 - the data set's code
    finally:
        functions.close()
    return True


def prints(test: dict[str, str], program: str, *, spawn: Spawn, watch: Watch, most: int) -> bool:
    """Whether the program, given the input, ends well and prints the wanted output."""
    Path("program.py").write_text(program, encoding="utf-8")
    with tempfile.TemporaryFile(buffering=0) as given, tempfile.TemporaryFile() as printed:
        given.write(test["stdin"].encode())
        given.seek(0)
        process = spawn(["program.py"], stdin=given, stdout=printed)
        watch.program, watch.output = process.pid, printed.fileno()
        try:
            status = process.wait()
        finally:
            watch.output = None  # before it is closed: the clock may look at any moment
        watch.judge(status)
        if os.fstat(printed.fileno()).st_size > most:
            raise Fault("output")
        printed.seek(0)
        text = printed.read().decode("utf-8", "replace")
    return status == 0 and _lines(text) == _lines(test["stdout"])


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]


def judge(
    test: dict[str, str], request: dict[str, Any], *, watch: Watch, spawn: Spawn
) -> list[Any]:
    """[passed, fault] of one test."""
    run = asserts if "code" in test else prints
    most = request["limits"]["output_bytes"]
    passed, fault = False, ""
    try:
        try:
            watch.start()
            passed = run(test, request["program"], spawn=spawn, watch=watch, most=most)
        finally:
            watch.stop()
    except Fault as broken:
        fault = str(broken)
    except (Exception, SystemExit):  # noqa: BLE001 - whatever a test raises, it is not passed
        passed = False
    _tidy()
    return [passed, fault]


def _tidy() -> None:
    for path in Path.cwd().iterdir():
        shutil.rmtree(path, ignore_errors=True) if path.is_dir() else path.unlink()


def main(asked: int, verdict: int) -> None:
    """Read the request from descriptor `asked`, say hello on `verdict`, test, tell the results."""
    ctypes.CDLL(None).prctl(_NOT_DUMPABLE, 0)
    with open(asked, encoding="utf-8") as source:
        request = json.load(source)
    os.set_inheritable(verdict, False)
    # Never true outside a cell, where it would kill all that this user runs.
    alone = bool(request["alone"]) and (os.getppid(), os.getpid()) == (_INIT, _TESTER)
    limits, nonce = request["limits"], request["nonce"]
    watch = Watch(limits, alone=alone)

    def spawn(script: list[str], **more: Any) -> subprocess.Popen[bytes]:
        given = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, **more}
        process: subprocess.Popen[bytes] = subprocess.Popen(  # noqa: S603 - this is the sandbox
            [sys.executable, "-I", *script],
            start_new_session=True,
            preexec_fn=lambda: _limit(limits, alone=alone),  # noqa: PLW1509 - one thread alone
            **given,
        )
        return process

    os.write(verdict, json.dumps({"nonce": nonce, "results": []}).encode() + b"\n")
    results = [judge(test, request, watch=watch, spawn=spawn) for test in request["tests"]]
    os.write(verdict, json.dumps({"nonce": nonce, "results": results}).encode() + b"\n")


if __name__ == "__main__":
    sys.path.insert(0, str(_HERE))
    from candidate import decode, encode  # type: ignore[import-not-found] # a script beside it

    main(int(sys.argv[1]), int(sys.argv[2]))
else:
    from ebbtide.sandbox.inside.candidate import decode, encode
