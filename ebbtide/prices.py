"""What a site's pools cost where a job does not say so itself (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Prices = Mapping[str, Mapping[str, float]]
"""By pool: the fields of `spec.prices[]` but the pool's name."""
_ROLES = ("planner", "learner", "decode", "prefill", "reward")
_CURRENCY, _POOL = "USD", "default"


def unlisted(spec: Mapping[str, Any], prices: Prices, currency: str) -> list[dict[str, Any]]:
    """Entries of `spec.prices` for pools that the job uses and gives no price; any `spec` is borne.

    A job that counts in another currency is left as it is: a price is never converted.
    """
    if spec.get("currency", _CURRENCY) != currency:
        return []
    parts = [part for role in _ROLES if isinstance(part := spec.get(role, {}), Mapping)]
    used = {str(part.get("pool", _POOL)) for part in parts}
    given = {one.get("pool") for one in _entries(spec)}
    return [{"pool": pool, **prices[pool]} for pool in sorted(used - given) if pool in prices]


def _entries(spec: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = spec.get("prices", ())
    listed = found if isinstance(found, list | tuple) else ()
    return [one for one in listed if isinstance(one, Mapping)]
