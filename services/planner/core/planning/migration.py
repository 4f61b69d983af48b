"""Cut running samples and go on with them elsewhere, so that their actor can be released.

Three rules: `tau_rule` (RLHFless, 2602.22718) as published, `global_cut` (RLHFuse, 2409.13221) as a
baseline, and `benefit_rule`: empty an actor when the holding time it saves exceeds what the move
costs. A move takes KV over the measured path or computes it again, whichever is faster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from services.planner.core.planning.demand import Demand, from_forecast
from services.planner.core.planning.matching import cheapest_matching
from services.planner.core.planning.profile import Profile
from services.planner.core.planning.rollout_time import RolloutTime, rollout_time
from services.planner.core.prediction.forecast import Forecast

Floats = npt.NDArray[np.floating[Any]]
Ints = npt.NDArray[np.integer[Any]]

_TARGETS = 16
"""So many targets are matched at most, unless they have too few slots."""
MOST_AT_ONCE = 32
"""An actor that still decodes more than this is not worth emptying."""


class Working(NamedTuple):
    """An actor in a step. `samples` run there now and hold `tokens` (prompt and answer) each.

    `stays`: it may take samples but gives none up now, for it has moved some lately.
    """

    name: str
    slots: int
    finished: int
    samples: tuple[int, ...]
    tokens: tuple[int, ...]
    stays: bool = False

    @property
    def free(self) -> int:
        """Slots without a sample."""
        return max(self.slots - len(self.samples), 0)


class Move(NamedTuple):
    """`how` the target gets the KV; `seconds` until it can go on.

    `gain`: what emptying the source is worth, in the unit of `Worth`; 0 where nothing is weighed.
    """

    sample: int
    source: str
    target: str
    how: Literal["kv", "recompute"]
    seconds: float
    gain: float = 0.0


Far = Callable[[str, str], float]
"""What a move from one actor to another costs for the way, in seconds."""


def tau_rule(actors: Sequence[Working], profile: Profile, *, tau: float = 0.7) -> list[Move]:
    """As published: an actor whose finished fraction is at least `tau` gives up what is unfinished.

    Targets are actors that are not cut themselves and have free slots, first fit; samples beyond
    those slots stay. Nothing else is weighed.
    """
    cut = [a for a in actors if a.samples and not a.stays and _finished_share(a) >= tau]
    names = {actor.name for actor in cut}
    slots = [a.name for a in actors if a.samples and a.name not in names for _ in range(a.free)]
    waiting = [(actor, i) for actor in cut for i in range(len(actor.samples))]
    pairs = zip(waiting, slots, strict=False)
    return [_move(actor, i, target, profile) for (actor, i), target in pairs]


def global_cut(
    actors: Sequence[Working], profile: Profile, *, total: int, share: float = 0.2
) -> list[Move]:
    """RLHFuse: once at most `share` of all samples run, gather them on as few actors as hold them.

    The actors with the most unfinished samples are kept: enough for the slots and for the KV.
    """
    left = sum(len(actor.samples) for actor in actors)
    threshold = share * total
    if not left or left > threshold:
        return []
    ranked = sorted((a for a in actors if a.samples), key=lambda a: (-len(a.samples), a.name))
    kept = ranked[: _enough(ranked, threshold, profile)]
    slots = [actor.name for actor in kept for _ in range(actor.free)]
    going = [actor for actor in ranked[len(kept) :] if not actor.stays]
    waiting = [(a, i) for a in going for i in range(len(a.samples))]
    return [_move(a, i, to, profile) for (a, i), to in zip(waiting, slots, strict=False)]


@dataclass(frozen=True)
class Worth:
    """What a second is worth, in one unit: of an actor, and of the step (what waits for its end).

    actor 0: nobody is released, so a move must bring the step's end nearer. margin: seconds of an
    actor (else of the step) that a move must gain at least.
    """

    actor: float = 1.0
    step: float = 0.0
    margin: float = 0.5

    @property
    def least(self) -> float:
        """What a move must gain."""
        return self.margin * (self.actor or self.step)


def benefit_rule(
    actors: Sequence[Working],
    residual: Forecast,
    profile: Profile,
    *,
    worth: Worth,
    far: Far | None = None,
    tries: int | None = None,
) -> list[Move]:
    """Empty the actors for which it pays; all of an actor's samples move, or none.

    `residual`: tokens to come, one row per running sample in the actors' order. Saved is the
    holding time of the source; paid are the move itself, during which the source is held, the
    targets' longer time, and any delay of the step's end. Targets are chosen by matching; of
    equal ones the nearest by `far`. `tries`: sources that are weighed at most, those with fewest
    samples first; each costs milliseconds with hundreds of actors.
    """
    busy = [actor for actor in actors if actor.samples]
    if len(busy) < 2:
        return []
    board = _board(busy, residual, profile, far)
    moves: list[Move] = []
    few = [a for a in range(len(busy)) if len(busy[a].samples) <= MOST_AT_ONCE]
    few = [a for a in few if not busy[a].stays]
    for source in sorted(few, key=lambda a: (len(busy[a].samples), busy[a].name))[:tries]:
        moves += board.empty(source, worth)
    return moves


class _Board:
    """Who decodes what, and the expected seconds that each actor still takes."""

    def __init__(
        self,
        actors: Sequence[Working],
        demand: Demand,
        time: RolloutTime,
        profile: Profile,
        far: Far | None,
    ) -> None:
        self._actors, self._demand, self._time, self._profile = actors, demand, time, profile
        self._far = far
        tokens = [t for actor in actors for t in actor.tokens]
        self._context = sum(tokens) / len(tokens)
        each = self._context + float(demand.expected.mean())
        self._fits = int(profile.file.kv_tokens / each)
        starts = np.cumsum([0, *(len(a.samples) for a in actors)])
        self.held = [list(range(starts[a], starts[a + 1])) for a in range(len(actors))]
        self._first = starts
        self._received: set[int] = set()
        self._seconds = self._seconds_of([self.held[a] for a in range(len(actors))])

    def empty(self, source: int, worth: Worth) -> list[Move]:
        """Move all samples of `source` if that pays; else nothing."""
        if source in self._received or not self.held[source]:
            return []
        targets = self._match(source)
        if targets is None:
            return []
        moves = [self._move(row, t) for row, t in zip(self.held[source], targets, strict=True)]
        after = self._after(source, targets)
        gain = self._gain(source, after, max(m.seconds for m in moves), worth)
        if gain <= worth.least:
            return []
        self._settle(source, targets, after)
        return [move._replace(gain=gain) for move in moves]

    def _match(self, source: int) -> list[int] | None:
        """A target for each sample: the cheapest matching to free slots."""
        rows = self.held[source]
        others = [a for a in range(len(self._actors)) if a != source and self.held[a]]
        free = np.minimum(self._free(others), len(rows))
        if free.sum() < len(rows):
            return None
        extra, slower = self._costs(source, others)
        best = _cheapest(extra + slower, free, len(rows))
        nth = np.concatenate([np.arange(free[at]) for at in best])
        places = np.repeat(best, free[best])
        costs = extra[:, places] + slower[:, places] * (1 + 0.01 * nth)
        return [others[at] for at in places[cheapest_matching(costs)].tolist()]

    def _costs(self, source: int, others: Sequence[int]) -> tuple[Floats, Floats]:
        """(samples, others) seconds: by which a target ends later, and by which it is slower."""
        alone = self._seconds_of([[row] for row in self.held[source]])[:, None]
        ends = self._seconds[others][None]
        extra = np.maximum(alone - ends, 0.0)
        if self._far is not None:
            here = self._actors[source].name
            extra += [self._far(here, self._actors[t].name) for t in others]
        return extra, np.minimum(alone, ends) * self._slowdowns(others)

    def _slowdowns(self, others: Sequence[int]) -> Floats:
        """(others,) the share by which one more sample slows a batch."""
        n = np.asarray([len(self.held[a]) for a in others], float)
        now, more = (self._profile.tpot(b, b * self._context) for b in (n, n + 1))
        slower: Floats = more / now - 1
        return slower

    def _free(self, others: Sequence[int]) -> Ints:
        """Samples that each can take: by its slots, and by KV at their expected ends."""
        held = np.asarray([len(self.held[a]) for a in others])
        slots = np.asarray([self._actors[a].slots for a in others])
        free: Ints = np.maximum(np.minimum(slots, self._fits) - held, 0)
        return free

    def _after(self, source: int, targets: Sequence[int]) -> Floats:
        """(actors,) seconds once the samples have moved."""
        seconds = self._seconds.copy()
        touched = sorted(set(targets))
        rows = self.held[source]
        groups = [
            self.held[t] + [r for r, to in zip(rows, targets, strict=True) if to == t]
            for t in touched
        ]
        seconds[touched] = self._seconds_of(groups)
        seconds[source] = 0.0
        return seconds

    def _gain(self, source: int, after: Floats, moving: float, worth: Worth) -> float:
        """Saved less paid, in the unit of `worth`. Moved samples stand still while they move."""
        before = self._seconds
        saved = before[source] - moving
        longer = after.sum() - before.sum() + before[source]
        changed = after > before
        end = max(after.max(), (after[changed] + moving).max(initial=0.0))
        later = end - before.max()
        return float(worth.actor * (saved - longer) - worth.step * later)

    def _settle(self, source: int, targets: Sequence[int], after: Floats) -> None:
        for row, target in zip(self.held[source], targets, strict=True):
            self.held[target].append(row)
        self.held[source] = []
        self._received |= set(targets)
        self._seconds = after

    def _move(self, row: int, target: int) -> Move:
        at = int(np.searchsorted(self._first, row, side="right")) - 1
        actor = self._actors[at]
        return _move(actor, row - int(self._first[at]), self._actors[target].name, self._profile)

    def _seconds_of(self, groups: Sequence[Sequence[int]]) -> Floats:
        actor_of = np.full(len(self._demand.item_of), len(groups))
        for at, rows in enumerate(groups):
            actor_of[list(rows)] = at
        shares = self._demand.shares_of(actor_of, len(groups) + 1)[:-1]
        return self._time.seconds(shares @ self._demand.alive, shares @ self._demand.quiet)


def _cheapest(costs: Floats, free: Ints, needed: int) -> Ints:
    """Of the columns of `costs` the cheapest, enough of them and no more than are worth a look."""
    ranked = np.argsort(costs.mean(axis=0), kind="stable")
    enough = int(np.searchsorted(np.cumsum(free[ranked]), needed)) + 1
    chosen: Ints = np.sort(ranked[: max(enough, _TARGETS)])
    return chosen


def _board(
    actors: Sequence[Working], residual: Forecast, profile: Profile, far: Far | None
) -> _Board:
    tokens = [t for actor in actors for t in actor.tokens]
    assert len(residual) == len(tokens), "one forecast per running sample"
    demand = from_forecast(residual)
    slots = max(actor.slots for actor in actors)
    context = sum(tokens) / len(tokens)
    time = rollout_time(profile, demand, slots=slots, prompt_tokens=context)
    return _Board(actors, demand, time, profile, far)


def _finished_share(actor: Working) -> float:
    return actor.finished / (actor.finished + len(actor.samples))


def _enough(ranked: Sequence[Working], threshold: float, profile: Profile) -> int:
    """The smallest number of the first actors with `threshold` slots and KV for all that runs."""
    tokens = sum(sum(actor.tokens) for actor in ranked)
    slots = 0
    for count, actor in enumerate(ranked, start=1):
        slots += actor.slots
        if slots >= threshold and count * profile.file.kv_tokens >= tokens:
            return count
    return len(ranked)


def _move(actor: Working, at: int, target: str, profile: Profile) -> Move:
    over, anew = (
        f(float(actor.tokens[at])) for f in (profile.handover_seconds, profile.recompute_seconds)
    )
    how: Literal["kv", "recompute"] = "kv" if over <= anew else "recompute"
    return Move(actor.samples[at], actor.name, target, how, min(over, anew))


def freed(actors: Iterable[Working], moves: Iterable[Move]) -> list[str]:
    """Actors that run nothing once `moves` are done: those to release."""
    gone = {(move.source, move.sample) for move in moves}
    return [a.name for a in actors if all((a.name, sample) in gone for sample in a.samples)]
