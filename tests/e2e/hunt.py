"""Kill processes of a running job at random moments, and know what was in flight."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field

from benchmarks.progress import Progress
from benchmarks.stack import Pod, Stack, until

POD_ROLES = ("planner", "decode", "reward", "learner")
HOST_ROLES = ("gateway", "operator")
ROLES = (*POD_ROLES, *HOST_ROLES)


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

    @property
    def over(self) -> bool:
        """The job has ended."""
        return self.stack.ended(self.job) is not None

    def kill(self, role: str, *, seconds: float = 240.0) -> bool:
        """Kill one process of `role` while samples wait; False if the job ended before."""
        until(lambda: self._busy(role) or self.over, seconds=seconds, what=f"work for {role}")
        time.sleep(self.rng.uniform(0, self.spread))  # the random moment, not a wait for anything
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
        return self.progress.pending > 0 and self._victim(role) is not None

    def _victim(self, role: str) -> Pod | None:
        if role in HOST_ROLES:
            pid = self.stack.up.pids.get(role, 0)
            return Pod(role, "", str(pid), role, "Running", ready=True, pid=pid) if pid else None
        running = [p for p in self.stack.pods(self.job, role) if p.phase == "Running" and p.ready]
        return self.rng.choice(running) if running else None

    def _replaced(self, role: str, victim: Pod, seconds: float) -> None:
        """Until another process does the role's work, or nobody needs it any more."""

        def another() -> bool:
            if role in HOST_ROLES:
                anew = self.stack.up.pids.get(role, 0) not in (0, victim.pid)
                return anew and (role != "gateway" or self.stack.client.ready())
            pods = self.stack.pods(self.job, role)
            full = [p for p in pods if p.phase == "Running" and p.pid != victim.pid]
            return len(full) == len(pods) > 0

        until(lambda: another() or self.over, seconds=seconds, what=f"a new {role}")
