"""What a site's pools cost where a job does not say so itself (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Prices = Mapping[str, Mapping[str, float | str | None]]
"""By pool: the fields of `spec.prices[]` but the pool's name."""
_ROLES = ("planner", "learner", "decode", "prefill", "reward")
_CURRENCY, _POOL = "USD", "default"


def unlisted(spec: Mapping[str, Any], prices: Prices, currency: str) -> list[dict[str, Any]]:
    """Entries of `spec.prices` for pools that the job uses and gives no price.

    Nothing for a job that counts in another currency, since a price is never converted, and for a
    list that is none: what is malformed is refused by its own check.
    """
    named = _named(spec.get("prices", []))
    if named is None or spec.get("currency", _CURRENCY) != currency:
        return []
    parts = [part for role in _ROLES if isinstance(part := spec.get(role, {}), Mapping)]
    used = {str(part.get("pool", _POOL)) for part in parts}
    return [{"pool": pool, **prices[pool]} for pool in sorted(used - named) if pool in prices]


def _named(prices: object) -> set[str] | None:
    """Pools of a list of prices; None if it is none."""
    if not isinstance(prices, list | tuple):
        return None
    pools = [one.get("pool") if isinstance(one, Mapping) else None for one in prices]
    return None if None in pools else {str(pool) for pool in pools}
