"""One step's decoding in simulated time: actors, moves, interruptions, releases (pure).

Time 0 is when decoding can begin. Actors may serve later; what is theirs waits for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from services.planner.core.planning.migration import Move, Working
from services.planner.simulate.answers import Batch
from services.planner.simulate.machine import Ended, Job, Machine, Table

Ints = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.floating[Any]]

STAYS = 10.0
"""Who has moved a sample or got one stays as it is for so long, as in the running planner.

Actors of the second type always keep theirs: the rules weigh the speed of the pool's type alone."""


class Seat(NamedTuple):
    """An actor of a step. `kind`: index of its type. It serves from `ready` on."""

    kind: int
    ready: float = 0.0


@dataclass(frozen=True)
class Layout:
    """`actor_of` (n,): seats. `rank` (n,): order in which an actor takes its samples up."""

    actor_of: Ints
    seats: Sequence[Seat]
    rank: Ints
    predicted: float | None = None


class Lost(NamedTuple):
    """An actor that is taken away, and how long before it is told."""

    actor: int
    at: float
    notice: float


@dataclass
class Actor:
    """`left`: when it was let go or taken away; `moved`: seconds that it was kept for moves."""

    kind: int
    machine: Machine
    ready: float
    left: float | None = None
    drained: float = 0.0
    touched: float = -STAYS
    finished: int = 0
    lost: bool = False


@dataclass
class Rollout:
    """What came of it. `ends` (n,): NaN where a sample did not end before the stop."""

    actors: list[Actor]
    ends: Floats
    stop: float
    moves: int = 0
    moved_tokens: float = 0.0
    recomputed: float = 0.0
    rest: Floats = field(default_factory=lambda: np.zeros(0))
    served: bool = False

    @property
    def seconds(self) -> float:
        """Until the last sample ended, or the stop."""
        return self.stop


Mover = Callable[[float, Sequence[Working], "Running"], Sequence[Move]]
"""(now, actors, what runs) -> moves."""


class Running(NamedTuple):
    """Samples that run, in the order of the actors that are shown; `done`: tokens written."""

    samples: Ints
    done: Ints
    left: int


Cache = Literal["none", "engine", "service"]
"""Nothing is shared; every actor computes a prompt once; a service computes it once for all."""


class World:
    """Runs one layout. `hear` is told what ended, in order of time."""

    def __init__(
        self,
        batch: Batch,
        layout: Layout,
        tables: Sequence[Table],
        *,
        cache: Cache,
        pause: float,
        service: float = 0.0,
        tick: float = 1.0,
        hear: Callable[[Sequence[int]], None],
    ) -> None:
        self._batch, self._pause, self._hear = batch, pause, hear
        self._tick = tick
        self._served = cache == "service"
        self._come = self._prefilled(layout, service if self._served else 0.0)
        self._tables = tables
        self.actors = [
            Actor(s.kind, Machine(tables[s.kind], s.ready), s.ready) for s in layout.seats
        ]
        self._ends = np.full(len(batch), np.nan)
        self._moves, self._moved, self._recomputed = 0, 0.0, 0.0
        self._now, self._heard = 0.0, 0.0
        self._fill(layout, cache)

    def _fill(self, layout: Layout, cache: Cache) -> None:
        batch = self._batch
        order = np.lexsort((layout.rank, layout.actor_of))
        jobs: list[list[Job]] = [[] for _ in self.actors]
        seen: set[tuple[int, int]] = set()
        for sample in order.tolist():
            actor, group = int(layout.actor_of[sample]), int(batch.group[sample])
            prompt, done = float(batch.prompt_tokens[sample]), float(batch.done[sample])
            known = cache == "service" or (cache == "engine" and (actor, group) in seen)
            seen.add((actor, group))
            computed = done if known else prompt + done
            rest = float(batch.lengths[sample]) - done
            ready = max(self.actors[actor].ready, float(self._come[group]))
            jobs[actor].append(Job(sample, rest, prompt + done, computed, ready))
        for one, mine in zip(self.actors, jobs, strict=True):
            one.machine.add(sorted(mine, key=lambda job: job.ready))

    def _prefilled(self, layout: Layout, service: float) -> Floats:
        """(groups,) when the service has each prompt's KV: one after the other, longest first."""
        first = np.full(self._batch.groups, len(self._batch))
        np.minimum.at(first, self._batch.group, layout.rank)
        tokens = np.zeros(self._batch.groups)
        tokens[self._batch.group] = self._batch.prompt_tokens
        order = np.argsort(first, kind="stable")
        come = np.empty(self._batch.groups)
        come[order] = np.cumsum(tokens[order]) * service
        return come

    def run(
        self,
        *,
        mover: Mover | None = None,
        leaves: bool = False,
        losses: Sequence[Lost] = (),
        until: float = float("inf"),
    ) -> Rollout:
        """Decode all, or up to `until`. `leaves`: an actor without samples leaves at once."""
        pending = sorted(losses, key=lambda one: one.at)
        while self._busy() and self._now < until:
            target = self._next(mover, pending, until)
            self._advance(target, leaves=leaves)
            while pending and pending[0].at <= self._now:
                self._lose(pending.pop(0))
            if mover is not None and self._busy():
                self._move(mover, leaves=leaves)
        return self._outcome(until)

    def _next(self, mover: Mover | None, pending: Sequence[Lost], until: float) -> float:
        tick = self._now + self._tick if mover is not None else float("inf")
        lost = max(pending[0].at, self._now + 1e-9) if pending else float("inf")
        return min(tick, lost, until)

    def _busy(self) -> bool:
        return any(actor.machine.load for actor in self.actors)

    def _advance(self, until: float, *, leaves: bool) -> None:
        ended: list[Ended] = []
        for actor in self.actors:
            if actor.machine.load:
                mine = actor.machine.advance(until)
                actor.finished += len(mine)
                ended += mine
                if leaves and not actor.machine.load:
                    actor.left = max(actor.machine.last, actor.drained)
        ended.sort(key=lambda one: one.at)
        for sample, at in ended:
            self._ends[sample] = at
        self._now = until if until != float("inf") else self._last(ended)
        self._hear([one.sample for one in ended])

    def _last(self, ended: Sequence[Ended]) -> float:
        return ended[-1].at if ended else self._now

    def _workings(self) -> tuple[list[Working], list[Actor]]:
        shown, those = [], []
        for number, actor in enumerate(self.actors):
            machine = actor.machine
            if actor.left is None and not machine.waiting and actor.ready <= self._now:
                running = tuple(machine.running)
                tokens = tuple(int(machine.held(s)) for s in running)
                stays = actor.kind != 0 or self._now - actor.touched < STAYS
                slots = self._tables[actor.kind].slots
                shown.append(Working(str(number), slots, actor.finished, running, tokens, stays))
                those.append(actor)
        return shown, those

    def _move(self, mover: Mover, *, leaves: bool) -> None:
        shown, _ = self._workings()
        if sum(bool(one.samples) for one in shown) < 2:
            return
        samples = np.asarray([s for one in shown for s in one.samples], np.intp)
        tokens = np.asarray([t for one in shown for t in one.tokens])
        done = np.maximum(tokens - self._batch.prompt_tokens[samples], 0)
        left = int(np.isnan(self._ends).sum())
        for move in mover(self._now, shown, Running(samples, done, left)):
            self._carry(move, leaves=leaves)

    def _carry(self, move: Move, *, leaves: bool) -> None:
        source, target = self.actors[int(move.source)], self.actors[int(move.target)]
        job = source.machine.cut(move.sample)
        ready = self._now + self._pause + (move.seconds if move.how == "kv" else 0.0)
        computed = 0.0 if move.how == "kv" else job.held
        target.machine.add([job._replace(ready=ready, computed=computed)])
        source.touched = target.touched = self._now
        source.drained = max(source.drained, ready)
        self._moves += 1
        self._moved += job.held if move.how == "kv" else 0.0
        self._recomputed += computed
        if leaves and not source.machine.load:
            source.left = source.drained

    def _lose(self, lost: Lost) -> None:
        """Its samples go to whoever has least; told in time it hands tokens and KV on."""
        actor = self.actors[lost.actor]
        if actor.left is not None:
            return
        actor.left, actor.lost = self._now, True
        stranded = [actor.machine.cut(s) for s in list(actor.machine.running)]
        stranded += actor.machine.drop_waiting()
        for job in stranded:
            others = [a for a in self.actors if a.left is None]
            target = min(others, key=lambda a: a.machine.load) if others else self._replace(actor)
            computed = job.computed if lost.notice > 0 else job.held
            target.machine.add([job._replace(ready=self._now + self._pause, computed=computed)])
            self._moves += 1
            self._moved += job.held - computed if lost.notice > 0 else 0.0
            self._recomputed += computed

    def _replace(self, gone: Actor) -> Actor:
        """Nobody is left: one more is started, on demand."""
        ready = self._now + max(gone.ready, 30.0)
        actor = Actor(0, Machine(self._tables[0], ready), ready)
        self.actors.append(actor)
        return actor

    def _outcome(self, until: float) -> Rollout:
        known = self._ends[~np.isnan(self._ends)]
        stop = until if until != float("inf") else float(known.max(initial=0.0))
        rest = np.zeros(len(self._batch))
        for actor in self.actors:
            for sample in list(actor.machine.running):
                rest[sample] = actor.machine.cut(sample).rest
            for job in actor.machine.drop_waiting():
                rest[job.sample] = job.rest
        return Rollout(
            self.actors,
            self._ends,
            stop,
            self._moves,
            self._moved,
            self._recomputed,
            rest,
            self._served,
        )
