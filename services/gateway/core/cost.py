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
_SLACK = 1e-6


class Rate(msgspec.Struct, frozen=True):
    """Held seconds of a role, how many of them have a price, and what those cost."""

    held: float = 0.0
    priced: float = 0.0
    cost: float = 0.0

    def plus(self, seconds: float, per_hour: float | None) -> Rate:
        """With `seconds` more at `per_hour` (None: unknown)."""
        if per_hour is None:
            return msgspec.structs.replace(self, held=self.held + seconds)
        paid = seconds * per_hour / 3600.0
        return Rate(self.held + seconds, self.priced + seconds, self.cost + paid)

    @property
    def total(self) -> float | None:
        """Cost of all held seconds, or None if some have no price."""
        return self.cost if self.held - self.priced <= _SLACK else None


def report(
    usages: Iterable[Usage],
    spent: Mapping[tuple[str, str], float],
    *,
    prices: Mapping[str, float],
    currency: str,
) -> dict[str, Any]:
    """The report (ebbtide.api.CostReport). `prices`: per hour of one member, by pool."""
    roles: defaultdict[str, Rate] = defaultdict(Rate)
    for usage in usages:
        roles[usage.role] = roles[usage.role].plus(usage.seconds, prices.get(usage.pool))
    parts, over = _parts(roles, spent)
    totals = [rate.total for rate in roles.values()]
    return {
        "currency": currency,
        "total": _sum(totals),
        "known": sum(rate.cost for rate in roles.values()),
        "heldSeconds": sum(rate.held for rate in roles.values()),
        "unpricedSeconds": sum(rate.held - rate.priced for rate in roles.values()),
        "overAttributedSeconds": over,
        "byRole": {role: rate.total for role, rate in sorted(roles.items())},
        "byCause": _by_cause(parts),
        "parts": parts,
    }


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
    total = rate.total
    known = total is not None and rate.held > 0
    cost = seconds * rate.cost / rate.held if known else None
    return {"role": role, "cause": cause, "seconds": seconds, "cost": cost}


def _by_cause(parts: Sequence[Mapping[str, Any]]) -> dict[str, float | None]:
    grouped: defaultdict[str, list[float | None]] = defaultdict(list)
    for part in parts:
        grouped[part["cause"]].append(part["cost"])
    return {cause: _sum(costs) for cause, costs in sorted(grouped.items())}


def _sum(costs: Sequence[float | None]) -> float | None:
    known = [cost for cost in costs if cost is not None]
    return sum(known) if len(known) == len(costs) else None
