"""What a step took and cost: GPU-seconds by cause, dollars, tail, moves (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from services.planner.core.planning.idling import pays_to_let_go
from services.planner.simulate.answers import Batch
from services.planner.simulate.policies import Policy
from services.planner.simulate.rollout import Actor, Rollout
from services.planner.simulate.site import BASE, Site


class Span(NamedTuple):
    """What an actor did between two moments of a step, seconds since decoding began."""

    actor: int
    cause: str
    start: float
    end: float


@dataclass(frozen=True)
class Figures:
    """Of one step. GPU-seconds unless the name says otherwise.

    decoding: held by actors from the beginning of decoding to its end, starts included; `held` by
    actors in the whole step. decode_dollars, dollars: None where a price is unknown; the first is
    of `decoding`, the second of all roles in the whole step. worth: dollars and the value of the
    step's time; GPU-seconds of all roles where a price is unknown.
    """

    step: int
    decode_seconds: float
    step_seconds: float
    decoding: float
    held: float
    busy: float
    idle: float
    loading: float
    draining: float
    wasted: float
    others: float
    decode_dollars: float | None
    dollars: float | None
    worth: float
    tail_seconds: float
    actors: int
    prefill_tokens: float
    moves: int
    moved_tokens: float
    predicted_seconds: float | None
    spans: tuple[Span, ...]


@dataclass
class _Sum:
    decoding: float = 0.0
    held: float = 0.0
    busy: float = 0.0
    loading: float = 0.0
    draining: float = 0.0
    decode_dollars: float = 0.0
    dollars: float = 0.0
    priced: bool = True


class Ledger:
    """Settles the steps of one policy. `kept`: actors that the last step left behind."""

    def __init__(self, site: Site, policy: Policy) -> None:
        self._site, self._policy = site, policy
        self.kept = site.most

    def settle(
        self, batch: Batch, rollout: Rollout, *, wasted: float, predicted: float | None
    ) -> Figures:
        """`wasted`: tokens that were decoded for nothing."""
        decode = rollout.seconds
        whole = self._whole(decode)
        total, kept, spans = _Sum(), 0, list[Span]()
        for number, actor in enumerate(rollout.actors):
            left = self._leaves(actor, rollout.seconds)
            kept += left is None
            started = number >= self.kept and self._policy.released != "hold"
            spans += self._charge(
                total,
                number,
                actor,
                left=left,
                end=rollout.seconds,
                whole=whole,
                started=started,
            )
        self.kept = kept
        return self._figures(
            batch,
            rollout,
            total,
            decode=decode,
            whole=whole,
            wasted=wasted,
            predicted=predicted,
            spans=spans,
        )

    def _leaves(self, actor: Actor, end: float) -> float | None:
        """When it is let go; None: never."""
        done = max(actor.machine.last, actor.drained)
        if actor.lost:
            return actor.left
        match self._policy.released:
            case "hold":
                return None
            case "stage":
                return end
            case "finish":
                return min(done, end)
        until = end - done + self._site.gap
        start = self._site.scenario.actors.start.seconds
        return min(done, end) if pays_to_let_go(until, start) else None

    def _charge(
        self,
        total: _Sum,
        number: int,
        actor: Actor,
        *,
        left: float | None,
        end: float,
        whole: float,
        started: bool,
    ) -> list[Span]:
        gpus = self._site.gpus(actor.kind)
        stop = end if left is None else min(left, end)
        start = self._site.scenario.actors.start
        loading = (start.seconds if start.hidden else min(actor.ready, stop)) if started else 0.0
        early = loading if start.hidden else 0.0
        after = whole - end if left is None else 0.0
        draining = (
            max(stop - actor.machine.last, 0.0) if actor.drained > actor.machine.last else 0.0
        )
        busy = min(actor.machine.busy, stop)
        total.decoding += gpus * (stop + early)
        total.held += gpus * (stop + early + after)
        total.busy += gpus * busy
        total.loading += gpus * loading
        total.draining += gpus * draining
        self._pay(total, actor.kind, stop + early, after)
        return _spans(number, actor, loading if not start.hidden else 0.0, stop, draining)

    def _pay(self, total: _Sum, kind: int, decoding: float, after: float) -> None:
        price = self._site.per_second(kind, self._policy)
        if price is None:
            total.priced = False
            return
        total.decode_dollars += price * decoding
        total.dollars += price * (decoding + after)

    def _whole(self, decode: float) -> float:
        """Of the step, all phases."""
        phases = self._site.scenario.phases
        learn = phases.learn * self._learner_share()
        match self._policy.overlaps:
            case "score":
                return phases.sync + decode + learn
            case "learn":
                return phases.sync + max(decode, phases.score + learn)
        return phases.sync + decode + phases.score + learn

    def _learner_share(self) -> float:
        """Of the learner's seconds, where it has other GPUs than its own."""
        site = self._site
        pool = site.most * site.gpus(BASE)
        match self._policy.shares_gpus:
            case "turns":
                return site.held_gpus / pool
            case "halves":
                return site.held_gpus / max(pool // 2, 1)
        return 1.0

    def _others(self, whole: float) -> tuple[float, float | None]:
        """GPU-seconds and dollars of the held roles."""
        site = self._site
        if self._policy.shares_gpus == "turns":
            return 0.0, 0.0
        if self._policy.shares_gpus == "halves":
            gpus, price = site.most * site.gpus(BASE) // 2, site.per_second(BASE, self._policy)
            each = None if price is None else gpus / site.gpus(BASE) * price * whole
            return gpus * whole, each
        price = site.held_per_second
        return site.held_gpus * whole, None if price is None else price * whole

    def _figures(
        self,
        batch: Batch,
        rollout: Rollout,
        total: _Sum,
        *,
        decode: float,
        whole: float,
        wasted: float,
        predicted: float | None,
        spans: Sequence[Span],
    ) -> Figures:
        others, money = self._others(whole)
        share = wasted / max(wasted + float(batch.lengths.sum() - batch.done.sum()), 1.0)
        dollars = total.dollars + money if total.priced and money is not None else None
        return Figures(
            step=batch.number,
            decode_seconds=decode,
            step_seconds=whole,
            decoding=total.decoding,
            held=total.held,
            busy=total.busy * (1 - share),
            idle=max(total.held - total.busy - total.loading - total.draining, 0.0),
            loading=total.loading,
            draining=total.draining,
            wasted=total.busy * share,
            others=others,
            decode_dollars=total.decode_dollars if total.priced else None,
            dollars=dollars,
            worth=self._worth(dollars, total.held + others, whole),
            tail_seconds=_tail(rollout),
            actors=len(rollout.actors),
            prefill_tokens=self._prefilled(batch, rollout),
            moves=rollout.moves,
            moved_tokens=rollout.moved_tokens,
            predicted_seconds=predicted,
            spans=tuple(spans),
        )

    def _worth(self, dollars: float | None, gpu_seconds: float, whole: float) -> float:
        return gpu_seconds if dollars is None else dollars + self._site.hour * whole / 3600.0

    def _prefilled(self, batch: Batch, rollout: Rollout) -> float:
        """By the actors, and by the service: each prompt once."""
        by_actors = sum(actor.machine.prefilled for actor in rollout.actors)
        if not rollout.served:
            return by_actors
        first = np.unique(batch.group, return_index=True)[1]
        return by_actors + float(batch.prompt_tokens[first].sum())


def _spans(number: int, actor: Actor, loading: float, stop: float, draining: float) -> list[Span]:
    last = min(actor.machine.last, stop)
    marks = [
        ("loading", 0.0, loading),
        ("busy", max(loading, 0.0), last),
        ("draining", last, last + draining),
        ("idle", last + draining, stop),
    ]
    return [Span(number, cause, a, b) for cause, a, b in marks if b > a + 1e-9]


def _tail(rollout: Rollout) -> float:
    """Seconds in which the last tenth of the samples ended."""
    ends = np.sort(rollout.ends[~np.isnan(rollout.ends)])
    return float(ends[-1] - ends[int(len(ends) * 0.9)]) if len(ends) else 0.0
