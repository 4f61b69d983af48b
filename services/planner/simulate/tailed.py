"""Which prompts a step takes, for policies that begin more than they need (pure)."""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol

import numpy as np

from services.planner.simulate.answers import Batch, Order, with_done
from services.planner.simulate.policies import Policy
from services.planner.simulate.rollout import Rollout
from services.planner.simulate.scenario import Work


class Takes(Protocol):
    """`stops`: whether a step ends before all that was begun has ended."""

    stops: bool

    def batch(self, step: int) -> Batch:
        """What the step begins or goes on with."""

    def stop(self, batch: Batch, rollout: Rollout) -> float:
        """When it has what it needs, given how it would go on."""

    def ended(self, batch: Batch, rollout: Rollout) -> float:
        """The step is over; returns tokens that were decoded for nothing."""


def takes_of(policy: Policy, order: Order, work: Work) -> Takes:
    """As the policy says."""
    match policy.unfinished:
        case "on":
            return GoesOn(order, work, policy.more_prompts)
        case "anew":
            return Anew(order, work, policy)
    return Plain(order)


class Plain:
    """Every step decodes its own prompts to the end."""

    stops = False

    def __init__(self, order: Order) -> None:
        self._order = order

    def batch(self, step: int) -> Batch:
        return self._order.batch(step)

    def stop(self, batch: Batch, rollout: Rollout) -> float:  # noqa: ARG002 - the protocol's
        raise AssertionError("a plain step ends with its last sample")

    def ended(self, batch: Batch, rollout: Rollout) -> float:  # noqa: ARG002 - the protocol's
        return 0.0


class GoesOn:
    """Partial rollouts: groups that have not ended go on next step, first of all."""

    stops = True

    def __init__(self, order: Order, work: Work, more: float) -> None:
        self._order, self._work, self._more = order, work, more
        self._issued = 0
        self._open: list[tuple[tuple[int, int], list[int]]] = []
        self._asked: list[tuple[int, int]] = []

    def batch(self, step: int) -> Batch:
        begun = math.ceil(self._work.prompts_per_step * self._more)
        fresh = self._order.issued(self._issued, max(begun - len(self._open), 0))
        self._issued += len(fresh)
        self._asked = [pair for pair, _ in self._open] + fresh
        size = self._work.group_size
        done = np.zeros(len(self._asked) * size, np.int32)
        for at, (_, tokens) in enumerate(self._open):
            done[at * size : (at + 1) * size] = tokens
        return with_done(self._order.of(step, self._asked, size), done)

    def stop(self, batch: Batch, rollout: Rollout) -> float:
        return _nth_group(batch, rollout, self._work.prompts_per_step)

    def ended(self, batch: Batch, rollout: Rollout) -> float:
        size = self._work.group_size
        whole = ~np.isnan(rollout.ends).reshape(-1, size).any(axis=1)
        written = (batch.lengths - np.ceil(rollout.rest)).astype(np.int64).reshape(-1, size)
        limit = batch.lengths.reshape(-1, size) - 1
        written = np.clip(written, 0, np.maximum(limit, 0))
        self._open = [
            (self._asked[at], written[at].tolist()) for at in np.flatnonzero(~whole).tolist()
        ]
        return 0.0


class Anew:
    """RollPacker (2509.21009): short rounds take the first to end, long rounds the others.

    What is aborted is decoded from scratch in a long round, which begins nothing in excess.
    """

    stops = True

    def __init__(self, order: Order, work: Work, policy: Policy) -> None:
        self._order, self._work = order, work
        self._prompts = math.ceil(work.prompts_per_step * policy.more_prompts)
        self._samples = min(math.ceil(work.group_size * policy.more_samples), 2 * work.group_size)
        self._issued = 0
        self._late: deque[tuple[int, int]] = deque()
        self._asked: list[tuple[int, int]] = []
        self._long = False

    def batch(self, step: int) -> Batch:
        need, size = self._work.prompts_per_step, self._work.group_size
        fresh = self._order.issued(self._issued, self._prompts)
        self._long = len(self._late) >= need or len(fresh) < need
        if self._long:
            self._asked = [self._late.popleft() for _ in range(min(need, len(self._late)))]
            return self._order.of(step, self._asked or fresh, size)
        self._issued += len(fresh)
        self._asked = fresh
        return self._order.of(step, fresh, self._samples)

    def stop(self, batch: Batch, rollout: Rollout) -> float:
        if self._long:
            return float("inf")
        return _nth_group(batch, rollout, self._work.prompts_per_step, first=self._work.group_size)

    def ended(self, batch: Batch, rollout: Rollout) -> float:
        if self._long:
            return 0.0
        taken = _group_ends(batch, rollout, self._work.group_size) <= rollout.stop + 1e-9
        late = np.flatnonzero(~taken)
        self._late.extend(self._asked[at] for at in late.tolist())
        written = batch.lengths - rollout.rest
        ended = ~np.isnan(rollout.ends)
        useful = written[taken[batch.group] & ended].sum()
        return float(np.maximum(written.sum() - useful, 0.0))


def _group_ends(batch: Batch, rollout: Rollout, first: int | None) -> np.ndarray:
    """(groups,) when each has its first so many samples (None: all)."""
    ends = np.where(np.isnan(rollout.ends), np.inf, rollout.ends)
    per = np.sort(ends.reshape(batch.groups, -1), axis=1)
    return np.asarray(per[:, -1 if first is None else first - 1])


def _nth_group(batch: Batch, rollout: Rollout, need: int, first: int | None = None) -> float:
    ends = np.sort(_group_ends(batch, rollout, first))
    return float(ends[min(need, len(ends)) - 1])
