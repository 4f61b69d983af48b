"""What is switched on: the planner's settings of each variant, ours and RLHFless as published."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_OURS: Mapping[str, Any] = {"prediction": "blend", "assignment": "unequal"}
_PUBLISHED: Mapping[str, Any] = {
    "prediction": "ewma",
    "window": 1,
    "assignment": "equal-count",
    "tau": 0.7,
    "objective": {"type": "lambda", "weight": 0.7},
}


@dataclass(frozen=True)
class Variant:
    """`planner`: settings beside the objective of the part. `actors`: share of the full pool.

    dedup: prompts are computed once (emulated: the engine's cache; real: the prefill service).
    """

    name: str
    planner: Mapping[str, Any] = field(default_factory=dict)
    actors: float = 1.0
    dedup: bool = True


_BLIND = {"prediction": "none", "assignment": "round-robin", "scaling": "static"}

RAW = Variant("static, no dedup", _BLIND, dedup=False)
STATIC = Variant("static (+ dedup)", _BLIND)
"""VERL-like: a fixed pool, groups dealt out in turn, held to the end."""


def _added(who: str, settings: Mapping[str, Any], rule: str) -> tuple[Variant, ...]:
    """Assignment on the full pool, then the number of actors, then migration: all."""
    static = {**settings, "scaling": "static", "migration": "none"}
    elastic = {**settings, "scaling": "elastic", "migration": "none"}
    return (
        Variant(f"{who}: + assignment", static),
        Variant(f"{who}: + actor count", elastic),
        Variant(f"{who}: + migration = all", {**elastic, "migration": rule}),
    )


OURS = _added("ours", _OURS, "benefit")
RLHFLESS = _added("RLHFless", _PUBLISHED, "tau")
SWEEP = tuple(
    Variant(f"static, {share:.0%} of the pool", _BLIND, actors=share)
    for share in (0.75, 0.5, 0.375)
)
"""Beside them: would a smaller fixed pool have done as well?"""
