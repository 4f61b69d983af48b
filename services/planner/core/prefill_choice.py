"""Chooses for each step whether there is to be a prefill service, and says why (pure).

The choice is part of what `Decided` records, so a planner that takes over holds to it until it has
counted steps of its own.
"""

from __future__ import annotations

from collections import deque

from ebbtide.reports import PrefillCounts
from ebbtide.status import PrefillStatus
from services.planner.core.account import Account
from services.planner.core.config import Economy
from services.planner.core.curves import Curves
from services.planner.core.planning.prefilling import Prompts, Rates, judge
from services.planner.core.samples import OpenStep

_STEPS = 3
"""Steps that a choice looks back on."""
_ENOUGH = 0.5
"""Share of the prompts that actors must have computed to time them by what they spent."""


class PrefillChoice:
    """Acts where a job says `prefill.mode: auto`. `wanted` is None until it is decided."""

    def __init__(self, *, auto: bool, economy: Economy, curves: Curves) -> None:
        self._auto, self._economy, self._curves = auto, economy, curves
        self._steps: deque[Prompts] = deque(maxlen=_STEPS)
        self._compute: float | None = None
        self._take_over: float | None = None
        self.wanted: bool | None = None
        self.reason = ""

    @property
    def status(self) -> PrefillStatus | None:
        """What the operator is told; None: nothing, or nothing yet."""
        if not self._auto or self.wanted is None:
            return None
        return PrefillStatus(wanted=self.wanted, reason=self.reason)

    def follow(self, account: Account) -> None:
        """It was decided by the planner before this one."""
        if account.prefill:
            self.wanted, self.reason = account.prefill == "service", account.prefill_reason

    def decide(self, *, there: bool) -> tuple[str, str]:
        """Whether service or colocated, and why; empty if that is not open. `there`: one is heard."""
        if not self._auto:
            return "", ""
        now = there if self.wanted is None else self.wanted
        verdict = judge(tuple(self._steps), self._rates(), now=now)
        self.wanted, self.reason = verdict.service, verdict.reason
        return "service" if verdict.service else "colocated", verdict.reason

    def committed(self, step: OpenStep, counts: PrefillCounts, seconds: float) -> None:
        """A step of so many seconds is over."""
        if not self._auto or not step.size:
            return
        prompts = prompts_of(step, counts, seconds)
        self._steps.append(prompts)
        self._time(prompts, counts)

    def _time(self, prompts: Prompts, counts: PrefillCounts) -> None:
        """What a token takes an actor: computed where most was, taken over where most was that."""
        tokens = prompts.by_actors + prompts.imported
        if prompts.by_actors and prompts.by_actors >= _ENOUGH * tokens:
            self._compute = prompts.filling / prompts.by_actors
        elif prompts.imported:
            computed = prompts.by_actors * (self._compute or 0.0)
            self._take_over = max(0.0, prompts.filling - computed) / prompts.imported
        if self._compute is None and counts.in_service:
            self._compute = counts.service_seconds / counts.in_service

    def _rates(self) -> Rates:
        profile, price = self._curves.profile(), self._economy.per_hour
        known = profile.file.prefill_seconds_per_token or None
        path = profile.file.handover_bytes_per_second > 0
        expected = profile.handover_seconds(1.0) if path else 0.0
        return Rates(
            compute=known if self._compute is None else self._compute,
            take_over=expected if self._take_over is None else self._take_over,
            service=_ratio(price.get("prefill"), price.get("decode")),
        )


def prompts_of(step: OpenStep, counts: PrefillCounts, seconds: float) -> Prompts:
    """What the step's prompts came to, by the engines' counters and who held which group."""
    sizes: dict[str, int] = {}
    holders: dict[str, set[str]] = {}
    for sample in range(step.size):
        group = step.group(sample)
        sizes[group.prompt_id] = max(0, group.prompt_tokens - 1)
        holders.setdefault(group.prompt_id, set()).add(step.actors[sample])
    return Prompts(
        by_actors=counts.computed - counts.in_service,
        imported=counts.imported,
        distinct=sum(sizes.values()),
        most=sum(sizes[prompt] * len(names) for prompt, names in holders.items()),
        filling=counts.actor_seconds,
        seconds=seconds,
    )


def _ratio(service: float | None, actor: float | None) -> float:
    """Price of the service in actors; where a price is unknown they count alike."""
    if service is None or actor is None:
        return 1.0
    return service / actor if actor > 0 else float("inf") if service > 0 else 0.0
