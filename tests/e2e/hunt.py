"""Kill processes of a running job at random moments, and know what was in flight."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from benchmarks.progress import HandOn, Progress
from benchmarks.stack import Pod, Stack, until
from tests.checker.verdict import Verdict
from tests.e2e.jobs import Spec, judged

POD_ROLES = ("planner", "decode", "reward", "learner")
HOST_ROLES = ("gateway", "operator")
ROLES = (*POD_ROLES, *HOST_ROLES)
MOVERS = ("source", "target")
"""The two actors between which a sample is on its way."""
END_SECONDS = 400.0


@dataclass(frozen=True)
class Kill:
    """What was killed, and how many samples had no outcome at that moment."""

    role: str
    name: str
    pid: int
    pending: int


@dataclass
class Hunt:
    """Kills in one job. Moments and victims come from `rng` alone."""

    stack: Stack
    job: str
    job_uid: str
    rng: random.Random
    kills: list[Kill] = field(default_factory=list)
    spread: float = 0.6
    """Seconds after work is seen in flight, within which the kill comes."""

    def __post_init__(self) -> None:
        self.progress = Progress(self.stack.blobs, self.job_uid)
        self._hand_on: HandOn | None = None

    @property
    def over(self) -> bool:
        """The job has ended."""
        return self.stack.ended(self.job) is not None

    def kill(self, role: str, *, seconds: float = 240.0) -> bool:
        """Kill one process of `role` while samples wait; False if the job ended before."""
        until(lambda: self._busy(role) or self.over, seconds=seconds, what=f"work for {role}")
        if role not in MOVERS:  # of a move its own moment is the random one
            time.sleep(self.rng.uniform(0, self.spread))
        victim = self._victim(role)
        pending = self.progress.pending
        if victim is None or not pending:
            return False
        with suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)
            self.kills.append(Kill(role, victim.name, victim.pid, pending))
        self._replaced(role, victim, seconds)
        return True

    def _busy(self, role: str) -> bool:
        if role in MOVERS:
            self._hand_on = self.progress.new_hand_on()
        return self.progress.pending > 0 and self._victim(role) is not None

    def _victim(self, role: str) -> Pod | None:
        if role in HOST_ROLES:
            pid = self.stack.up.pids.get(role, 0)
            return Pod(role, "", str(pid), role, "Running", ready=True, pid=pid) if pid else None
        pods = self.stack.pods(self.job, "decode" if role in MOVERS else role)
        running = [p for p in pods if p.phase == "Running" and p.ready]
        if role in MOVERS:
            name = getattr(self._hand_on, role, "")
            return next((pod for pod in running if pod.name == name), None)
        return self.rng.choice(running) if running else None

    def _replaced(self, role: str, victim: Pod, seconds: float) -> None:
        """Until another process does the role's work, or nobody needs it any more."""

        def another() -> bool:
            if role in HOST_ROLES:
                anew = self.stack.up.pids.get(role, 0) not in (0, victim.pid)
                return anew and (role != "gateway" or self.stack.client.ready())
            pods = self.stack.pods(self.job, "decode" if role in MOVERS else role)
            full = [p for p in pods if p.phase == "Running" and p.pid != victim.pid]
            return len(full) == len(pods) > 0

        until(lambda: another() or self.over, seconds=seconds, what=f"a new {role}")


def hunt(
    stack: Stack, spec: Spec, roles: Sequence[str], *, each: int, seed: int
) -> tuple[list[Kill], list[Verdict]]:
    """Kill `each` processes of every role in one job of `spec` after another."""
    rng = random.Random(seed)  # noqa: S311 - a test must repeat
    left = list(roles) * each
    rng.shuffle(left)
    kills: list[Kill] = []
    verdicts: list[Verdict] = []
    while left:
        job = stack.submit(f"hunted-{seed}-{len(verdicts)}", spec)
        chase = Hunt(stack, job.name, job.metadata.uid, rng)
        while left and not chase.over:
            if chase.kill(left[-1]):
                left.pop()
        ended = stack.finished(job.name, seconds=END_SECONDS)
        assert ended.state == "Complete", f"{ended.reason}: {ended.message}"
        kills += chase.kills
        verdicts.append(judged(stack, job.metadata.uid))
    return kills, verdicts


def assert_nothing_is_lost(verdicts: list[Verdict]) -> None:
    """Zero lost, zero doubled, abandoned at most 1 %; and the actors' logs are really there."""
    assert [verdict.faults() for verdict in verdicts if verdict.faults()] == []
    # An actor that is killed between acceptance and its log takes what it held along; most stays.
    assert all(2 * verdict.settled > verdict.accepted for verdict in verdicts)
    abandoned, expected = (sum(getattr(v, n) for v in verdicts) for n in ("abandoned", "expected"))
    assert abandoned <= 0.01 * expected
