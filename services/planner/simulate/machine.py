"""One decode engine in simulated time: continuous batching, token by token, but solved in pieces.

Between two events (a sample ends, one is admitted, KV is full) the batch stays and its context
grows by one token per sample and iteration, so the time of n iterations has a closed form. Waiting
samples are admitted in order, as soon as a slot and the KV of what they hold are free; when KV is
full the one admitted last goes back to wait and computes its tokens again.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from services.planner.core.planning.profile import Profile

_EPSILON = 1e-9


class Table:
    """A profile as rows by whole batch, quick to read one value at a time."""

    def __init__(self, profile: Profile, slots: int) -> None:
        self.room = float(profile.file.kv_tokens)
        self.slots = slots
        self.per_token = profile.file.prefill_seconds_per_token
        knots = [float(c) for c in profile.file.contexts]
        self._knots = knots if len(knots) > 1 else [0.0, 1.0]
        batches = np.arange(1, slots + 1, dtype=float)[:, None]
        grid = profile.tpot(batches, np.asarray(self._knots))
        self._rows: list[list[float]] = grid.tolist()

    def tau(self, batch: int, context: float) -> float:
        """Seconds of one iteration."""
        knots, row = self._knots, self._rows[batch - 1]
        at = min(max(bisect_right(knots, context) - 1, 0), len(knots) - 2)
        share = (context - knots[at]) / (knots[at + 1] - knots[at])
        return row[at] + max(share, 0.0) * (row[at + 1] - row[at])


class Job(NamedTuple):
    """A sample for an engine. `rest`: tokens to come; `held`: prompt and answer so far.

    `computed`: of `held`, what the engine must compute first. It can begin at `ready`.
    """

    sample: int
    rest: float
    held: float
    computed: float
    ready: float


class Ended(NamedTuple):
    sample: int
    at: float


class Machine:
    """`now`: its clock; `busy`: seconds in which it decoded; `prefilled`: tokens it computed.

    `last`: until when it had something to decode.
    """

    def __init__(self, table: Table, now: float) -> None:
        self._table, self.now, self.busy, self.prefilled = table, now, 0.0, 0.0
        self._waiting: deque[Job] = deque()
        self._ends: list[tuple[float, int]] = []
        self._jobs: dict[int, tuple[float, float]] = {}  # iteration of admission, held then
        self._order: list[int] = []
        self._passed, self._held = 0.0, 0.0
        self.last = now

    @property
    def running(self) -> Sequence[int]:
        """Samples that decode now, in the order of admission."""
        return self._order

    @property
    def waiting(self) -> int:
        """Samples that have not begun."""
        return len(self._waiting)

    @property
    def load(self) -> int:
        """All samples."""
        return len(self._order) + len(self._waiting)

    def add(self, jobs: Sequence[Job]) -> None:
        """Queue these."""
        self._waiting.extend(jobs)

    def held(self, sample: int) -> float:
        """Tokens that a running sample holds now."""
        since, held = self._jobs[sample]
        return held + self._passed - since

    def cut(self, sample: int) -> Job:
        """Take a running sample off, as it is."""
        held = self.held(sample)
        end = next(end for end, s in self._ends if s == sample)
        self._ends.remove((end, sample))
        heapq.heapify(self._ends)
        self._forget(sample)
        self.last = max(self.last, self.now)
        return Job(sample, max(end - self._passed, 1.0), held, 0.0, self.now)

    def drop_waiting(self) -> list[Job]:
        """Take off all that wait."""
        jobs = list(self._waiting)
        self._waiting.clear()
        return jobs

    def advance(self, until: float) -> list[Ended]:
        """Decode up to `until`; what ended meanwhile, in order."""
        ended: list[Ended] = []
        while self.now < until - _EPSILON:
            self._admit()
            if not self._order:
                if not self._waiting:
                    break
                self.now = min(until, max(self.now, self._waiting[0].ready))
                continue
            self._decode(until, ended)
        return ended

    def _decode(self, until: float, ended: list[Ended]) -> None:
        """Up to the next event."""
        batch = len(self._order)
        steps = min(
            self._ends[0][0] - self._passed,
            max((self._table.room - self._held) / batch, 0.0) if batch > 1 else np.inf,
        )
        stop = min(until, self._next_ready())
        seconds = self._seconds(steps, batch)
        if self.now + seconds > stop + _EPSILON:
            steps, seconds = self._within(stop - self.now, batch), stop - self.now
        self._passed += steps
        self._held += steps * batch
        self.now += seconds
        self.busy += seconds
        self._end(ended)
        if batch > 1 and self._held >= self._table.room - 1e-6 and len(self._order) == batch:
            self._preempt()

    def _end(self, ended: list[Ended]) -> None:
        while self._ends and self._ends[0][0] <= self._passed + 1e-7:
            _, sample = heapq.heappop(self._ends)
            self._forget(sample)
            ended.append(Ended(sample, self.now))
            self.last = self.now

    def _seconds(self, steps: float, batch: int) -> float:
        return steps * self._table.tau(batch, self._held + batch * steps / 2)

    def _within(self, seconds: float, batch: int) -> float:
        """Iterations in so much time."""
        steps = 0.0
        for _ in range(4):
            steps = seconds / self._table.tau(batch, self._held + batch * steps / 2)
        return steps

    def _next_ready(self) -> float:
        """When a sample comes for which there is a slot; infinite if none does."""
        if not self._waiting or len(self._order) >= self._table.slots:
            return float("inf")
        ready = self._waiting[0].ready
        return ready if ready > self.now else float("inf")

    def _admit(self) -> None:
        stall = 0.0
        while self._waiting and self._waiting[0].ready <= self.now + _EPSILON:
            job = self._waiting[0]
            full = len(self._order) >= self._table.slots
            if full or (self._order and self._held + job.held + 1 > self._table.room):
                break
            self._waiting.popleft()
            self._begin(job)
            stall += job.computed * self._table.per_token
        self.now += stall
        self.busy += stall

    def _begin(self, job: Job) -> None:
        self._jobs[job.sample] = (self._passed, job.held)
        self._order.append(job.sample)
        self._held += job.held
        self.prefilled += job.computed
        heapq.heappush(self._ends, (self._passed + max(job.rest, 1e-6), job.sample))

    def _preempt(self) -> None:
        job = self.cut(self._order[-1])
        self._waiting.appendleft(job._replace(computed=job.held))

    def _forget(self, sample: int) -> None:
        self._held -= self.held(sample)
        del self._jobs[sample]
        self._order.remove(sample)
