"""What a worker judges by: the job's rules and functions, answer by answer.

It may be killed at any moment, and with it all that users' functions started. Limits on memory and
processor time are its own; the limit on time by the clock is the pool's.
"""

from __future__ import annotations

import math
import os
import resource
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ebbtide.errors import Refused
from ebbtide.rewards.outcomes import Answer, Judged, Outcome, Scorer
from ebbtide.rewards.scorers import judge, scorer
from ebbtide.rewards.versions import versions
from ebbtide.sandbox.cell import Cell, interpreter
from ebbtide.sandbox.proof import isolated
from ebbtide.spec import CodeReward, RewardSpec
from services.reward.engine.frames import Setup


def load(setup: Setup) -> RuleBench:
    """Import all that the components need. Raises Refused or ImportError where it is not there."""
    spec = RewardSpec.model_validate_json(setup.reward)
    cell = _cell(spec, setup.sandbox)
    scorers = tuple(scorer(component, cell=cell) for component in spec.components)
    return RuleBench(scorers, versions=versions(spec.components, cell=cell), setup=setup)


class RuleBench:
    """Scorers that run in this process."""

    def __init__(
        self, scorers: Sequence[Scorer], *, versions: Mapping[str, str], setup: Setup
    ) -> None:
        self._scorers = scorers
        self.versions = versions
        self._setup = setup

    def begin(self) -> None:
        """Bound the memory."""
        _limit_memory(self._setup.memory_bytes)

    def judge(self, answers: Sequence[Answer]) -> Iterator[Judged]:
        """One after the other, each with the processor time that it may have."""
        for answer in answers:
            _limit_processor(self._setup.cpu_seconds)
            yield _judge(self._scorers, answer)


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


def _judge(scorers: Sequence[Scorer], answer: Answer) -> Judged:
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
