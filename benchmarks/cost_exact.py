"""What the ledger says that a job cost, against the lifetimes of its processes read from the system.

`measure()` runs a job on the real local stack and kills processes of every role meanwhile. Beside it
a thread watches each process of the job: its start as the kernel tells it, its end as soon as it is
gone. Judged is the relative difference of the ledger's total from these lifetimes times the price.
"""

from __future__ import annotations

import json
import math
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from benchmarks.harness import Measured
from benchmarks.progress import Progress
from benchmarks.stack import Stack, running, until
from ebbtide.demo import model

NAME, PER_HOUR, STEPS, SECONDS = "priced", 36.0, 10, 900.0
VICTIMS = ("decode", "planner", "decode", "reward", "learner", "decode")
"""One is killed after each step, in this order."""
LIST_SECONDS, LOOK_SECONDS = 0.2, 0.02


class Lives:
    """Starts and ends of processes, Unix seconds, by role and pid."""

    def __init__(self) -> None:
        self.starts: dict[tuple[str, int], float] = {}
        self.ends: dict[tuple[str, int], float] = {}
        self.missed = 0

    def meet(self, role: str, pid: int) -> None:
        """A process of the job has this pid."""
        if (role, pid) in self.starts:
            return
        try:
            self.starts[role, pid] = _started(psutil.Process(pid))
        except psutil.NoSuchProcess:
            self.missed += 1  # it is over before anybody looked: its end is not known

    def look(self) -> None:
        """Note who is gone."""
        for key in [key for key in self.starts if key not in self.ends]:
            if not _lives(key[1]):
                self.ends[key] = time.time()

    def seconds(self) -> dict[str, float]:
        """By role; NaN where an end is not known."""
        found: dict[str, float] = {}
        for (role, pid), start in self.starts.items():
            lived = self.ends.get((role, pid), math.nan) - start
            found[role] = found.get(role, 0.0) + lived
        return found


def _started(process: psutil.Process) -> float:
    """Unix seconds. The system knows it since the boot, whose own time psutil has in whole seconds."""
    since_boot = process.create_time() - psutil.boot_time()
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot


def _lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


@contextmanager
def watching(stack: Stack) -> Iterator[Lives]:
    """Watch the job's processes in a thread of its own."""
    lives, over = Lives(), threading.Event()

    def watch() -> None:
        listed = -math.inf
        while not over.wait(LOOK_SECONDS):
            if time.monotonic() - listed > LIST_SECONDS:
                listed = time.monotonic()
                for pod in stack.pods(NAME):
                    if pod.pid:
                        lives.meet(pod.role, pod.pid)
            lives.look()

    thread = threading.Thread(target=watch, name="lives")
    thread.start()
    try:
        yield lives
    finally:
        over.set()
        thread.join()


def measure() -> Measured:
    """Relative difference of cost; NaN if a process was missed."""
    with tempfile.TemporaryDirectory() as scratch, running(Path(scratch) / "state") as stack:
        folder = Path(scratch)
        model.save(folder / "model", seed=0)
        with watching(stack) as lives:
            _run(stack, spec(folder / "model", _prompts(folder / "prompts.jsonl")))
            until(lambda: set(lives.starts) == set(lives.ends), seconds=60, what="all to end")
            until(lambda: _settled(stack), seconds=60, what="the last held time")
        return _judge(stack, lives)


def spec(folder: Path, prompts: Path) -> Mapping[str, Any]:
    """A job with a price, whose processes may die."""
    emulation = {"meanTokens": 100.0, "tpotMs": 20.0}
    return {
        "model": {"uri": str(folder)},
        "dataset": {"train": {"type": "jsonl", "uri": str(prompts)}, "maxPromptTokens": 64},
        "algorithm": {"type": "grpo", "groupSize": 4},
        "training": {"totalSteps": STEPS, "promptsPerStep": 8, "maxResponseTokens": 200},
        "reward": {"components": [{"type": "regex", "name": "early", "pattern": "^[a-m]"}]},
        "decode": {"engine": "emulated", "replicas": 2, "emulation": emulation},
        "learner": {"ranks": 1, "device": "cpu"},
        "checkpoint": {"everySteps": 1},
        "prices": [{"pool": "default", "perHour": PER_HOUR}],
        "backoffLimit": 1000,
    }


def _prompts(path: Path) -> Path:
    rows = [{"prompt": f"count to {n}", "answer": "a"} for n in range(64)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def _run(stack: Stack, wanted: Mapping[str, Any]) -> None:
    job = stack.submit(NAME, wanted)
    progress = Progress(stack.blobs, job.metadata.uid)
    for number, role in enumerate(VICTIMS, start=1):
        wait = _at_least(progress, number)
        until(wait, seconds=SECONDS, what=f"step {number}")
        alive = [pod.pid for pod in stack.pods(NAME, role) if pod.pid and _lives(pod.pid)]
        with suppress(IndexError, ProcessLookupError):
            os.kill(alive[0], signal.SIGKILL)
    ended = stack.finished(NAME, seconds=SECONDS)
    assert ended.state == "Complete", ended.message


def _at_least(progress: Progress, steps: int) -> Any:
    return lambda: progress.committed >= steps


def _settled(stack: Stack) -> bool:
    """No pod object is left: all held time is written for good."""
    before = stack.client.cost(NAME).held_seconds
    time.sleep(1.0)
    return stack.client.cost(NAME).held_seconds == before


def _judge(stack: Stack, lives: Lives) -> Measured:
    found = stack.client.cost(NAME, by=["role"])
    said = {part.role: part.seconds for part in found.parts}
    lived = lives.seconds()
    total = sum(lived.values()) * PER_HOUR / 3600.0
    known = found.total is not None and not lives.missed
    rows = [(role, lived[role], said.get(role, 0.0)) for role in sorted(lived)]
    rows.append((f"all, {len(lives.starts)} processes", sum(lived.values()), found.held_seconds))
    value = abs((found.total or 0.0) / total - 1.0) if known else math.nan
    return Measured(value, ("role", "seconds of the system", "seconds of the ledger"), rows)
