"""How long an actor takes for its samples: the iteration sum over its falling batch.

TailSieve's T = sum_j tau(j) (L_j - L_{j+1}) for lengths L_1 >= ... >= L_n, with three things more:
lengths are distributions (`Demand`), tau depends on the context that the batch holds, and samples
beyond the slots or the KV capacity are admitted in waves, longest first.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from services.planner.core.planning.demand import Demand
from services.planner.core.planning.profile import Profile

Floats = npt.NDArray[np.floating[Any]]

_TINY = 1e-9


@dataclass(frozen=True)
class Curve:
    """Of each actor: `chance` (actors, intervals) that it still decodes until `ends`, seconds."""

    ends: Floats
    chance: Floats

    def seconds(self) -> Floats:
        """(actors,) expected times."""
        lengths = np.diff(self.ends, axis=1, prepend=0.0)
        result: Floats = (lengths * self.chance).sum(axis=1)
        return result

    def makespan(self) -> float:
        """Expected time of the slowest actor: at least the largest expected time.

        The integral of the chance that anyone decodes: certain up to some time, then step by step.
        """
        if not self.ends.size:
            return 0.0
        silent = np.maximum(np.log1p(-np.minimum(self.chance, 1 - 1e-15)), -40.0)
        after = np.append(silent[:, 1:], np.zeros((len(silent), 1)), axis=1) - silent
        certain = float(self.ends.max(where=self.chance > 1 - 1e-9, initial=0.0))
        later = self.ends > certain
        quiet = silent[:, 0].sum() + after.sum(where=~later)
        times, steps = self.ends[later], after[later]
        order = np.argsort(times)
        running = -np.expm1(np.minimum(np.append(quiet, quiet + np.cumsum(steps[order])), 0.0))
        return certain + float(np.diff(times[order], prepend=certain) @ running[:-1])


@dataclass(frozen=True)
class RolloutTime:
    """The cost model of one actor type for one demand.

    tau (intervals, slots + 2): seconds per token of a batch whose samples are in that interval of
    lengths. widths, middles, room (intervals,): tokens, tokens, samples that fit at once.
    per_sample: seconds to admit a sample. per_actor: seconds before the first (weights).
    """

    tau: Floats
    widths: Floats
    middles: Floats
    room: Floats
    per_sample: float
    per_actor: float

    def seconds(self, alive: Floats, quiet: Floats) -> Floats:
        """(rows,) expected seconds of actors with these sums over their samples (rows, intervals).

        `alive` sums the chances that a sample is left, `quiet` their log-chances to be over. Exact
        for known lengths; otherwise tau is taken at the batch expected while any sample is left.
        """
        chance, batch = _batch(alive, quiet)
        steps = chance * self.widths
        if not (batch > self.room).any():
            return np.asarray((self._tau(batch) * steps).sum(axis=-1) + self._outside(alive))
        running, extra = self._waves(batch, steps)
        inside = (self._tau(running) * steps).sum(axis=-1)
        return np.asarray(inside + extra * chance[..., 0] + self._outside(alive))

    def single(self) -> RolloutTime:
        """The same in single precision: twice as fast, for tables of many thousand rows."""
        tau, widths, middles, room = (
            a.astype(np.float32) for a in (self.tau, self.widths, self.middles, self.room)
        )
        return replace(self, tau=tau, widths=widths, middles=middles, room=room)

    def curve(self, alive: Floats, quiet: Floats) -> Curve:
        """When each actor passes each interval, and whether it still decodes then."""
        chance, batch = _batch(alive, quiet)
        running, extra = self._waves(batch, chance * self.widths)
        first = extra + self._outside(alive)
        return Curve(first[:, None] + np.cumsum(self._tau(running) * self.widths, axis=1), chance)

    def not_before(self, demand: Demand, caps: Floats) -> Floats:
        """Expected end of a step whose actors are expected to take at most each of `caps`.

        However the samples are split, the longest answer takes its own time: the expected larger
        one of the cap and of that answer decoded alone.
        """
        quiet = demand.counts @ demand.quiet
        ends = self.per_actor + self.per_sample + np.cumsum(self.tau[:, 1] * self.widths)
        lengths = np.diff(ends, prepend=0.0)
        beyond = np.clip(ends - caps[:, None], 0.0, lengths)
        return np.asarray(caps - beyond @ np.expm1(quiet))

    def shares(self, demand: Demand, shares: Floats) -> Curve:
        """The curve of actors that hold these samples of each bucket: (actors, buckets)."""
        return self.curve(shares @ demand.alive, shares @ demand.quiet)

    def _outside(self, alive: Floats) -> Floats:
        return self.per_actor * (alive[..., 0] > 0) + self.per_sample * alive[..., 0]

    def _tau(self, batch: Floats) -> Floats:
        low = batch.astype(np.int32)
        part = batch - low.astype(batch.dtype)
        at = low + np.arange(len(self.tau), dtype=np.int32) * self.tau.shape[1]
        flat = self.tau.ravel()
        below = flat.take(at)
        result: Floats = below + part * (flat.take(at + 1) - below)
        return result

    def _waves(self, batch: Floats, steps: Floats) -> tuple[Floats, Floats]:
        """The batch that runs, and seconds of full batches that precede.

        The longest samples run from the start; those that wait fill the room that these leave,
        and what is still left needs iterations of its own.
        """
        running = np.minimum(batch, self.room)
        waiting = ((batch - running) * steps).sum(axis=-1, keepdims=True)
        free = (self.room - running) * steps
        before = np.cumsum(free, axis=-1) - free
        filled = np.clip((waiting - before) / np.maximum(free, _TINY), 0.0, 1.0)
        left = np.maximum(waiting - free.sum(axis=-1, keepdims=True), 0.0)[..., 0]
        full = running + filled * (self.room - running)
        if not left.any():
            return full, left
        return full, left * self._per_token_when_full(batch, steps)

    def _per_token_when_full(self, batch: Floats, steps: Floats) -> Floats:
        """Seconds per token of the actor at a full batch, whose samples are halfway on average."""
        work = batch * steps
        age = (work @ self.middles) / np.maximum(work.sum(axis=-1), _TINY)
        at = np.minimum(np.searchsorted(self.middles, age), len(self.middles) - 1)
        room = self.room[at]
        result: Floats = self.tau[at, room.astype(np.int32)] / room
        return result


def rollout_time(
    profile: Profile,
    demand: Demand,
    *,
    slots: int,
    prompt_tokens: float = 0.0,
    reserved: float | None = None,
    per_sample: float = 0.0,
    per_actor: float = 0.0,
) -> RolloutTime:
    """The cost model; `prompt_tokens` is the mean prompt, which every sample holds as context.

    reserved: KV tokens that the engine sets aside for each sample at its start (the torch engine:
    prompt and limit); None where KV grows with the sample and what finds no room has to wait.
    """
    middles = (demand.bounds[:-1] + demand.bounds[1:]) / 2
    context = prompt_tokens + middles
    each = context if reserved is None else np.full(len(context), max(reserved, 1.0))
    room = np.clip(np.floor(profile.file.kv_tokens / each), 1, slots)
    batches = np.arange(slots + 2, dtype=float)
    tau = profile.tpot(np.maximum(batches, 1.0), batches * context[:, None])
    return RolloutTime(
        tau=tau,
        widths=np.diff(demand.bounds),
        middles=middles,
        room=room,
        per_sample=per_sample,
        per_actor=per_actor,
    )


def replayed_seconds(
    profile: Profile, lengths: Sequence[int], *, slots: int, prompt_tokens: float = 0.0
) -> float:
    """Event by event, for known lengths (the reference of the formulas; slow for many samples).

    Samples start longest first, as soon as a slot and the KV of their whole answer are free.
    """
    waiting = sorted(lengths)
    running: list[tuple[int, int]] = []  # (iteration of its end, its length)
    now, seconds, room = 0, 0.0, profile.file.kv_tokens
    while waiting or running:
        while waiting and _fits(running, waiting[-1], slots, room, prompt_tokens):
            heapq.heappush(running, (now + waiting[-1], waiting.pop()))
        end = running[0][0]
        ages = [(now + end) / 2 - (stop - length) for stop, length in running]
        context = sum(ages) + len(running) * prompt_tokens
        seconds += (end - now) * float(profile.tpot(len(running), context))
        now = end
        while running and running[0][0] == now:
            heapq.heappop(running)
    return seconds


def _fits(
    running: Sequence[tuple[int, int]], length: int, slots: int, room: int, prompt_tokens: float
) -> bool:
    held = sum(other for _, other in running) + len(running) * prompt_tokens
    return not running or (len(running) < slots and held + length + prompt_tokens <= room)


def _batch(alive: Floats, quiet: Floats) -> tuple[Floats, Floats]:
    """The chance that any sample is left, and how many are expected then."""
    chance = -np.expm1(quiet)
    return chance, np.where(alive > _TINY, alive / np.maximum(chance, _TINY), 0.0)
