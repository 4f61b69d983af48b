"""Follow a job from outside: its ledger on disk, its step reports, its processes' CPU time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from ebbtide import ledger, paths
from ebbtide.reports import StepReport
from ebbtide.wire import Abandoned, Committed, Dispatched, Extended, Scored, StepOpened


@dataclass(frozen=True)
class HandOn:
    """A sample that one actor had went on with another."""

    source: str
    target: str


class Progress:
    """Reads a job's ledger as it grows."""

    def __init__(self, blobs: Path, job_uid: str) -> None:
        self._folder = blobs
        self._uid = job_uid
        self._next = 0
        self._committed = 0
        self._waiting: set[tuple[int, int]] = set()
        self._holders: dict[tuple[int, int], str] = {}
        self._hand_on: HandOn | None = None

    def new_hand_on(self) -> HandOn | None:
        """The newest since the last call."""
        self._refresh()
        found, self._hand_on = self._hand_on, None
        return found

    @property
    def pending(self) -> int:
        """Samples of the open step that have no outcome yet."""
        self._refresh()
        return len(self._waiting)

    @property
    def committed(self) -> int:
        """Commits so far, those of steps that were done again included."""
        self._refresh()
        return self._committed

    def _refresh(self) -> None:
        while (file := self._folder / paths.segment(self._uid, self._next)).exists():
            for record in ledger.decode_segment(file.read_bytes()).records:
                match record:
                    case Dispatched(key, _, actor):
                        before = self._holders.get((key.group, key.index), actor)
                        self._holders[key.group, key.index] = actor
                        if before != actor:
                            self._hand_on = HandOn(before, actor)
                    case StepOpened(plan):
                        self._holders = {}
                        self._waiting = {(g.group, i) for g in plan.groups for i in range(g.size)}
                    case Extended(groups=more):
                        self._waiting |= {(g.group, i) for g in more for i in range(g.size)}
                    case Scored(key) | Abandoned(key):
                        self._waiting.discard((key.group, key.index))
                    case Committed():
                        self._waiting = set()
                        self._committed += 1
            self._next += 1


def step_reports(blobs: Path, job_uid: str) -> list[StepReport]:
    """The planner's reports, in step order."""
    files = sorted((blobs / paths.step_reports(job_uid)).glob("*.json"))
    return [StepReport.model_validate_json(file.read_bytes(), strict=False) for file in files]


@dataclass
class CpuMeter:
    """CPU seconds of a process tree, ended processes as they were last seen."""

    root: int
    seen: dict[tuple[int, float], float] = field(default_factory=dict)

    def read(self) -> float:
        """User and system seconds of all processes so far."""
        for process in _tree(self.root):
            try:
                times = process.cpu_times()
                self.seen[process.pid, process.create_time()] = times.user + times.system
            except psutil.NoSuchProcess:
                continue
        return sum(self.seen.values())


def _tree(root: int) -> Sequence[psutil.Process]:
    try:
        parent = psutil.Process(root)
        return [parent, *parent.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def load_json(text: str) -> dict[str, object]:
    """The last line of a program's output, which is its result."""
    found: dict[str, object] = json.loads(text.strip().splitlines()[-1])
    return found
