"""Asks OpenCost what pods cost (its HTTP API: GET /allocation)."""

from __future__ import annotations

import math
from typing import Any

import httpx

from ebbtide.errors import Temporary

_SECONDS = 30.0
_OWN = "__"
"""OpenCost's own entries (__idle__, __unallocated__) begin so."""


class OpenCost:
    """One OpenCost at `url`. Failures of any kind raise Temporary: we cannot mend them here."""

    def __init__(self, url: str, *, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self._url = url.rstrip("/")
        self._transport = transport

    async def by_label(self, label: str, start: float, end: float) -> dict[str, float]:
        """Cost by the values of a pod label, Unix seconds from `start` to `end`, idle time not shared.

        OpenCost writes labels as Prometheus does, so other characters than letters and digits
        become underscores.
        """
        name = "".join(c if c.isalnum() else "_" for c in label)
        window = f"{math.floor(start)},{math.ceil(end)}"
        query = {"window": window, "aggregate": f"label:{name}", "accumulate": "true"}
        try:
            return _summed((await self._asked(query))["data"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Temporary(f"{self._url} does not answer as OpenCost does: {error}") from error

    async def _asked(self, query: dict[str, str]) -> Any:
        try:
            async with httpx.AsyncClient(timeout=_SECONDS, transport=self._transport) as http:
                answer = await http.get(f"{self._url}/allocation", params=query)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            raise Temporary(f"OpenCost at {self._url}: {error or type(error).__name__}") from error
        return answer.json()


def _summed(parts: list[dict[str, Any] | None]) -> dict[str, float]:
    costs: dict[str, float] = {}
    for part in parts:
        for value, allocation in (part or {}).items():
            if not value.startswith(_OWN):
                costs[value] = costs.get(value, 0.0) + float(allocation["totalCost"])
    return costs
