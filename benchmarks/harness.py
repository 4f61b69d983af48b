"""What a benchmark is: a `measure()` that returns rows and one figure; a target; a verdict.

Targets stand in `targets.toml` alone. The last line that a run prints is one JSON object
{name, value, unit, target, holds}; the exit status is 0 only if the target holds.
"""

from __future__ import annotations

import importlib
import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

TARGETS = Path(__file__).with_name("targets.toml")


@dataclass(frozen=True)
class Target:
    """What `value` must reach: at least or at most `limit`, in `unit`."""

    sense: Literal["at_least", "at_most"]
    limit: float
    unit: str
    about: str

    def holds(self, value: float) -> bool:
        """Whether `value` reaches the target; NaN never does."""
        return value >= self.limit if self.sense == "at_least" else value <= self.limit


@dataclass(frozen=True)
class Measured:
    """One run: the figure that is judged, and a table for people."""

    value: float
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


def load_targets(path: Path = TARGETS) -> Mapping[str, Target]:
    """Read the data file; raises KeyError or TypeError when a field is missing or unknown."""
    return {name: Target(**body) for name, body in tomllib.loads(path.read_text()).items()}


def find(name: str) -> Callable[[], Measured]:
    """The `measure` of benchmark `name`."""
    measure: Callable[[], Measured] = importlib.import_module(f"benchmarks.{name}").measure
    return measure


def table(measured: Measured) -> str:
    """The rows as aligned text."""
    cells = [[str(c) for c in measured.columns], *[[_text(c) for c in r] for r in measured.rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(measured.columns))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)) for r in cells)


def verdict(name: str, target: Target, measured: Measured) -> tuple[str, bool]:
    """The last line of the run, and whether the target holds."""
    holds = target.holds(measured.value)
    line = {
        "name": name,
        "value": round(measured.value, 6),
        "unit": target.unit,
        "target": f"{target.sense.replace('_', ' ')} {target.limit:g}",
        "holds": holds,
    }
    return json.dumps(line), holds


def _text(cell: object) -> str:
    return f"{cell:.4g}" if isinstance(cell, float) else str(cell)
