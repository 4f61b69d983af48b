"""A worker: judges answers one by one until its pipe closes (`python -m services.reward.engine.worker`).

It may be killed at any moment, and with it all that users' functions started: the process that is
started becomes the `guard`, and its child judges. Limits on memory and processor time are its own;
the limit on time by the clock is the pool's. What users' functions print goes to standard error.
"""

from __future__ import annotations

import math
import os
import resource
import sys
import time
from functools import partial
from pathlib import Path
from typing import BinaryIO

from ebbtide.errors import Refused
from ebbtide.rewards.outcomes import Answer, Judged, Outcome, Scorer
from ebbtide.rewards.scorers import judge, scorer
from ebbtide.rewards.versions import versions
from ebbtide.sandbox.cell import Cell, interpreter
from ebbtide.sandbox.proof import isolated
from ebbtide.spec import CodeReward, RewardSpec
from services.reward.engine import guard
from services.reward.engine.frames import Batch, Ready, Setup, Unfit, read_frame, write_frame


def main() -> int:
    """The guard's exit status and, in its child, the worker's."""
    worker = guard.fork()
    return guard.watch(worker) if worker else _work()


def _work() -> int:
    """Set up, say Ready, judge."""
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    # The scorer sees a worker's end by the end of this pipe: what functions fork must not hold it.
    os.register_at_fork(after_in_child=partial(os.close, out.fileno()))
    setup = read_frame(sys.stdin.buffer)
    assert isinstance(setup, Setup)
    try:
        spec = RewardSpec.model_validate_json(setup.reward)
        cell = _cell(spec, setup.sandbox)
        scorers = tuple(scorer(component, cell=cell) for component in spec.components)
    except (Refused, ImportError) as error:
        write_frame(out, Unfit(str(error)))
        return 1
    _limit_memory(setup.memory_bytes)
    write_frame(out, Ready(versions(spec.components, cell=cell)))
    _serve(sys.stdin.buffer, out, scorers, setup.cpu_seconds)
    return 0


def _cell(spec: RewardSpec, sandbox: str) -> Cell | None:
    """Where programs run, if the job has any; raises Refused where it must isolate and cannot."""
    if not any(isinstance(component, CodeReward) for component in spec.components):
        return None
    try:
        return isolated()
    except Refused:
        if sandbox == "required":
            raise
        return Cell(interpreter())


def _serve(
    source: BinaryIO, out: BinaryIO, scorers: tuple[Scorer, ...], cpu_seconds: float
) -> None:
    while isinstance(batch := read_frame(source), Batch):
        for answer in batch.answers:
            _limit_processor(cpu_seconds)
            write_frame(out, _judge(scorers, answer))


def _judge(scorers: tuple[Scorer, ...], answer: Answer) -> Judged:
    outcomes: list[Outcome] = []
    seconds: list[float] = []
    for score in scorers:
        start = time.perf_counter()
        outcomes.extend(judge((score,), answer))
        seconds.append(time.perf_counter() - start)
    return Judged(tuple(outcomes), tuple(seconds))


def _limit_memory(more: int) -> None:
    """Let address space grow by `more` bytes from here on; leave no core files."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + more
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _limit_processor(seconds: float) -> None:
    """End this process by SIGXCPU after `seconds` more on every processor, even with no pool left."""
    allowed = seconds * (os.cpu_count() or 1)
    soft = math.ceil(time.process_time() + allowed) + 1
    resource.setrlimit(resource.RLIMIT_CPU, (soft, resource.RLIM_INFINITY))


if __name__ == "__main__":
    sys.exit(main())
