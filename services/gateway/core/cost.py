"""The cost report: held time of the operator joined with causes of the planner (protocol.md 11).

Held time is what is paid for. Causes explain it; what they leave is `unattributed`, never spread
over the others. A price that is not known makes a cost unknown (None), never 0.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from ebbtide.usage import Usage

UNATTRIBUTED = "unattributed"
PARKED = "parked"
_SLACK = 1e-6


class Price(msgspec.Struct, frozen=True):
    """Of one member of a pool, an hour; `parked`: the share of it that an actor costs asleep."""

    per_hour: float
    parked: float = 1.0


class Rate(msgspec.Struct, frozen=True):
    """Held seconds of a role, how many of them have a price, and what those cost.

    `asleep`: what they would cost if all of them were slept through.
    """

    held: float = 0.0
    priced: float = 0.0
    cost: float = 0.0
    asleep: float = 0.0

    def plus(self, seconds: float, price: Price | None) -> Rate:
        """With `seconds` more at `price` (None: unknown)."""
        if price is None:
            return msgspec.structs.replace(self, held=self.held + seconds)
        paid = seconds * price.per_hour / 3600.0
        return Rate(
            self.held + seconds,
            self.priced + seconds,
            self.cost + paid,
            self.asleep + paid * price.parked,
        )

    def of(self, cause: str, seconds: float) -> float:
        """Cost of `seconds` of the held ones, by their cause."""
        whole = self.asleep if cause == PARKED else self.cost
        return seconds * whole / self.held if self.held else 0.0

    @property
    def known(self) -> bool:
        """Whether all held seconds have a price."""
        return self.held - self.priced <= _SLACK


def report(
    usages: Iterable[Usage],
    spent: Mapping[tuple[str, str], float],
    *,
    prices: Mapping[str, Price],
    currency: str,
) -> dict[str, Any]:
    """The report (ebbtide.api.CostReport). `prices`: by pool."""
    roles: defaultdict[str, Rate] = defaultdict(Rate)
    for usage in usages:
        roles[usage.role] = roles[usage.role].plus(usage.seconds, prices.get(usage.pool))
    parts, over = _parts(roles, spent)
    paid = {role: rate.cost - _refund(role, rate, spent) for role, rate in sorted(roles.items())}
    totals = {role: cost if roles[role].known else None for role, cost in paid.items()}
    return {
        "currency": currency,
        "total": _sum(list(totals.values())),
        "known": sum(paid.values()),
        "heldSeconds": sum(rate.held for rate in roles.values()),
        "unpricedSeconds": sum(rate.held - rate.priced for rate in roles.values()),
        "overAttributedSeconds": over,
        "byRole": totals,
        "byCause": _by_cause(parts),
        "parts": parts,
    }


def _refund(role: str, rate: Rate, spent: Mapping[tuple[str, str], float]) -> float:
    """What the role's actors did not cost because they slept."""
    slept = min(spent.get((role, PARKED), 0.0), rate.priced)
    return slept * (rate.cost - rate.asleep) / rate.held if rate.held else 0.0


def _parts(
    roles: Mapping[str, Rate], spent: Mapping[tuple[str, str], float]
) -> tuple[list[dict[str, Any]], float]:
    parts: list[dict[str, Any]] = []
    over = 0.0
    for role in sorted({*roles, *(role for role, _ in spent)}):
        rate = roles.get(role, Rate())
        caused = {cause: s for (of, cause), s in sorted(spent.items()) if of == role and s > 0}
        rest = rate.held - sum(caused.values())
        over += max(0.0, -rest)
        if rest > _SLACK:
            caused[UNATTRIBUTED] = rest
        parts += [_part(role, cause, seconds, rate) for cause, seconds in caused.items()]
    return parts, over


def _part(role: str, cause: str, seconds: float, rate: Rate) -> dict[str, Any]:
    cost = rate.of(cause, seconds) if rate.known and rate.held > 0 else None
    return {"role": role, "cause": cause, "seconds": seconds, "cost": cost}


def _by_cause(parts: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    grouped: defaultdict[str, list[float | None]] = defaultdict(list)
    for part in parts:
        grouped[part["cause"]].append(part["cost"])
    return {cause: _sum(costs) for cause, costs in sorted(grouped.items())}


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None
