"""What a scenario's actors are to the planner: profiles, tables, prices (pure)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from services.planner.core.planning.objective import Terms
from services.planner.core.planning.profile import Profile
from services.planner.core.planning.record import Lambda, ValueOfTime
from services.planner.simulate.calibration import computed_profile
from services.planner.simulate.machine import Table
from services.planner.simulate.policies import Policy
from services.planner.simulate.scenario import Scenario

BASE, OTHER = 0, 1
"""Index of the pool's actor type, and of the second one (tail, or on-demand beside spot)."""


@dataclass(frozen=True)
class Site:
    """`profiles`: of the pool's actors and, where there is one, of the tail's.

    `hour_worth`, `count`: where given, instead of the scenario's.
    """

    scenario: Scenario
    profiles: tuple[Profile, ...]
    hour_worth: float | None = None
    count: int | None = None

    @cached_property
    def tables(self) -> tuple[Table, ...]:
        """One per profile."""
        return tuple(Table(one, self.scenario.actors.slots) for one in self.profiles)

    @property
    def most(self) -> int:
        """Actors of the pool."""
        return self.scenario.actors.count if self.count is None else self.count

    def gpus(self, kind: int) -> int:
        """Of one actor of this type."""
        tail = self.scenario.tail
        if kind == OTHER and tail is not None:
            return tail.tensor_parallel
        return self.scenario.actors.tensor_parallel

    def per_second(self, kind: int, policy: Policy) -> float | None:
        """Dollars of one actor; None where the price is unknown."""
        scenario = self.scenario
        price = scenario.actors.per_gpu_hour
        if policy.spot and kind == BASE and scenario.spot is not None:
            price = scenario.spot.per_gpu_hour
        if kind == OTHER and scenario.tail is not None:
            price = scenario.tail.per_gpu_hour
        return None if price is None else price * self.gpus(kind) / 3600.0

    @property
    def held_gpus(self) -> int:
        """Of the roles that are held while actors decode."""
        return sum(role.gpus for role in self.scenario.held)

    @property
    def service(self) -> float:
        """Seconds per token of the prefill service, on the GPUs that are held beside the actors."""
        return self.profiles[BASE].file.prefill_seconds_per_token / max(self.held_gpus, 1)

    @property
    def held_per_second(self) -> float | None:
        """Dollars of those roles; None where one has no price."""
        prices = [(role.gpus, role.per_gpu_hour) for role in self.scenario.held]
        known = [gpus * price for gpus, price in prices if price is not None]
        return sum(known) / 3600.0 if len(known) == len(prices) else None

    @property
    def hour(self) -> float:
        """Dollars that an hour of step time is worth beside the held roles."""
        given = self.hour_worth
        return self.scenario.value.hour_worth if given is None else given

    def terms(self, policy: Policy) -> Terms:
        """What the policy decides by."""
        objective = ValueOfTime(self.hour) if policy.weight is None else Lambda(policy.weight)
        actor, held = self.per_second(BASE, policy), self.held_per_second
        return Terms(
            objective=objective,
            actor_per_hour=None if actor is None else actor * 3600.0,
            held_per_hour=None if held is None else held * 3600.0,
            held_members=self.held_gpus / self.gpus(BASE),
            hysteresis=0.0 if policy.weight is not None else 0.05,
        )

    @property
    def gap(self) -> float:
        """Seconds between the decoding of two steps."""
        phases = self.scenario.phases
        return phases.sync + phases.score + phases.learn

    def with_count(self, count: int) -> Site:
        """The same with a pool of this size."""
        return replace(self, count=count)


def make_site(scenario: Scenario, profile: Profile | None = None) -> Site:
    """`profile`: that of the scenario's file, if it names one. Raises Refused."""
    actors, start = scenario.actors, scenario.actors.start.seconds
    network = scenario.network.gigabytes_per_second * 1e9
    kinds = [actors, *([scenario.tail] if scenario.tail else [])]
    found = [
        computed_profile(
            scenario.model,
            kind.gpu,
            tensor_parallel=kind.tensor_parallel,
            start=start,
            network=network,
        )
        for kind in kinds[1 if profile else 0 :]
    ]
    every = [*([profile] if profile else []), *found]
    if scenario.spot is not None and scenario.tail is None:
        every.append(every[BASE])  # on demand beside spot: the same actors at another price
    return Site(scenario, tuple(every))
