"""Lays a step out as a policy says, by the planner's own functions (pure)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from services.planner.core.planning.actor_count import Plan, plan
from services.planner.core.planning.assignment import assign, round_robin
from services.planner.core.planning.demand import Demand, from_forecast, from_lengths
from services.planner.core.planning.laying import ActorModel, lay_out
from services.planner.core.planning.mixed import Kind as Type
from services.planner.core.planning.mixed import plan_two
from services.planner.core.planning.pool import Pool, make_pool
from services.planner.core.planning.rollout_time import RolloutTime, rollout_time
from services.planner.core.prediction.forecast import Forecast
from services.planner.simulate.answers import Batch
from services.planner.simulate.oracle import FEW, best_partition
from services.planner.simulate.policies import Policy
from services.planner.simulate.rollout import Layout, Seat
from services.planner.simulate.site import BASE, OTHER, Site

Ints = npt.NDArray[np.integer[Any]]

_TAIL_SHARE = 0.2


class Seating:
    """`warm`: actors that were kept since the step before; others start as the scenario says."""

    def __init__(self, site: Site, policy: Policy) -> None:
        self._site, self._policy = site, policy
        self._terms = site.terms(policy)
        self.warm = self._capacity = site.most

    def lay_out(
        self, batch: Batch, forecast: Forecast | None, capacity: int | None = None
    ) -> Layout:
        """Of one step; without a forecast groups are dealt out in turn.

        `capacity`: spot actors that can be had; the second type is there for the rest.
        """
        self._capacity = self._site.most if capacity is None else capacity
        if forecast is not None and batch.done.any():
            forecast = forecast.residual(batch.done.astype(np.int32), None)
        if forecast is None or not self._policy.chosen:
            return self._fixed(batch, forecast)
        if self._policy.belief == "known" and len(batch) <= FEW and not batch.done.any():
            return self._exact(batch, forecast)
        if self._policy.tail or self._policy.spot:
            return self._two(batch, forecast)
        return self._chosen(batch, forecast)

    def actor(self, batch: Batch) -> ActorModel:
        """What predictions know of one."""
        profile = self._site.profiles[BASE]
        prompt = float(batch.prompt_tokens.mean())
        each = 0.0 if self._policy.cache == "service" else profile.recompute_seconds(prompt)
        return ActorModel(profile, self._site.scenario.actors.slots, prompt, each)

    def _fixed(self, batch: Batch, forecast: Forecast | None) -> Layout:
        count = min(self._count(), batch.groups)
        if forecast is None or self._policy.rule == "round-robin":
            flat = from_lengths(np.ones(len(batch)), groups=batch.group)
            return self._seated(round_robin(flat, count).actor_of, count, batch, None)
        demand = from_forecast(forecast, limit=self._site.scenario.work.limit, groups=batch.group)
        if self._policy.rule == "longest-fifth":
            actor_of = longest_fifth(forecast, batch, count)
        else:
            actor_of = assign(
                self._policy.rule, demand, count, time=self._time(batch, demand)
            ).actor_of
        return self._seated(actor_of, count, batch, forecast)

    def _exact(self, batch: Batch, forecast: Forecast) -> Layout:
        """Few samples of known lengths: the best of all partitions."""
        of_time, of_actors = self._terms.weights()
        actor_of = best_partition(
            self._site.profiles[BASE],
            batch,
            most=self._site.most,
            slots=self._site.scenario.actors.slots,
            of_time=of_time,
            of_actors=of_actors,
        )
        return self._seated(actor_of, int(actor_of.max()) + 1, batch, forecast)

    def _chosen(self, batch: Batch, forecast: Forecast) -> Layout:
        planned = self._plan(batch, forecast)
        assert planned.assignment is not None, "a forecast gives an assignment"
        chosen = planned.decision.chosen
        return self._seated(
            planned.assignment.actor_of,
            planned.assignment.actors,
            batch,
            forecast,
            predicted=chosen.seconds if chosen else None,
        )

    def _plan(self, batch: Batch, forecast: Forecast) -> Plan:
        pool, actor = self.pool(), self.actor(batch)
        if self._policy.rule in ("round-robin", "equal-count"):
            return self._every(batch, forecast, pool, list(range(1, pool.maximum + 1)))
        assert self._policy.rule != "longest-fifth", "it has a fixed number of actors"
        limit = self._site.scenario.work.limit
        return lay_out(
            forecast,
            batch.group,
            pool=pool,
            terms=self._terms,
            actor=actor,
            limit=limit,
            kinds=(self._policy.rule,),
        ).plan

    def _every(self, batch: Batch, forecast: Forecast, pool: Pool, counts: list[int]) -> Plan:
        """Every count weighed, samples apart (RLHFless) or groups in turn."""
        rule = self._policy.rule
        assert rule != "longest-fifth", "it has a fixed number of actors"
        groups = batch.group if rule == "round-robin" else None
        demand = from_forecast(forecast, limit=self._site.scenario.work.limit, groups=groups)
        return plan(
            demand=demand,
            time=self._time(batch, demand),
            pool=pool,
            terms=self._terms,
            kinds=(rule,),
            counts=counts,
        )

    def _time(self, batch: Batch, demand: Demand) -> RolloutTime:
        actor = self.actor(batch)
        return rollout_time(
            actor.profile,
            demand,
            slots=actor.slots,
            prompt_tokens=actor.prompt_tokens,
            per_sample=actor.per_sample,
        )

    def _two(self, batch: Batch, forecast: Forecast) -> Layout:
        """The longest on the second type: the tail's, or on-demand beside spot."""
        site, policy = self._site, self._policy
        fast = site.profiles[-1] if policy.tail else site.profiles[BASE]
        tail = site.scenario.tail
        most = tail.most if policy.tail and tail is not None else site.most
        kinds = [
            Type(site.profiles[BASE], self._capacity, self._weight(BASE), site.gpus(BASE)),
            Type(fast, most, self._weight(OTHER), site.gpus(OTHER)),
        ]
        found = plan_two(
            forecast,
            batch.group,
            kinds=kinds,
            quota=site.most * site.gpus(BASE),
            of_time=self._terms.weights()[0],
            actor=self.actor(batch),
            limit=site.scenario.work.limit,
        )
        seats = [Seat(kind, 0.0) for kind in found.kinds]
        rank = _longest_first(forecast)
        return Layout(found.actor_of, seats, rank, found.seconds)

    def _weight(self, kind: int) -> float:
        price = self._site.per_second(kind, self._policy)
        return float(self._site.gpus(kind)) if price is None else price

    def pool(self) -> Pool:
        """As the planner sees it: what was kept serves; others start, hidden or not."""
        site, start = self._site, self._site.scenario.actors.start
        return make_pool(
            minimum=1,
            maximum=site.most,
            serving=min(self.warm, site.most),
            profile=site.profiles[BASE],
            now=0.0,
            lead=start.seconds if start.hidden else 0.0,
        )

    def _count(self) -> int:
        count = max(self._capacity, 1)
        return max(count // 2, 1) if self._policy.shares_gpus == "halves" else count

    def _seated(
        self,
        actor_of: Ints,
        count: int,
        batch: Batch,
        forecast: Forecast | None,
        predicted: float | None = None,
    ) -> Layout:
        start = self._site.scenario.actors.start
        cold = 0.0 if start.hidden or self._policy.released == "hold" else start.seconds
        loads = np.zeros(count) if forecast is None else _heaviest(forecast, actor_of, count)
        first = np.argsort(-loads, kind="stable")[: self.warm]
        seats = [Seat(BASE, 0.0 if n in set(first.tolist()) else cold) for n in range(count)]
        rank = np.arange(len(batch)) if forecast is None else _longest_first(forecast)
        return Layout(actor_of, seats, rank, predicted)


def longest_fifth(forecast: Forecast, batch: Batch, count: int) -> Ints:
    """StreamRL (2504.15930): the longest 20 % on actors of their own, the others on the rest.

    The split of the actors is that with the smallest slower side, by tokens of the longest.
    """
    expected = forecast.mean()
    order = np.argsort(-expected, kind="stable")
    if count == 1:
        return np.zeros(len(batch), np.intp)
    cut = max(int(len(batch) * _TAIL_SHARE), 1)
    tail, rest = expected[order[:cut]].sum(), expected[order[cut:]].sum()
    few = int(np.clip(round(count * tail / max(tail + rest, 1.0)), 1, count - 1))
    actor_of = np.empty(len(batch), np.intp)
    actor_of[order[:cut]] = np.arange(cut) % few
    actor_of[order[cut:]] = few + np.arange(len(batch) - cut) % (count - few)
    return actor_of


def _longest_first(forecast: Forecast) -> Ints:
    rank = np.empty(len(forecast), np.intp)
    rank[np.argsort(-forecast.mean(), kind="stable")] = np.arange(len(forecast))
    return rank


def _heaviest(forecast: Forecast, actor_of: Ints, count: int) -> npt.NDArray[np.float64]:
    """(count,) the longest expected answer of each."""
    found = np.zeros(count)
    np.maximum.at(found, actor_of, forecast.mean())
    return found
