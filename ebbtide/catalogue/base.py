"""What an entry of the catalogue says of a metric (pure)."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal

import msgspec

Kind = Literal["counter", "gauge", "histogram", "summary"]

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Histogram bounds for durations, in seconds."""


class Label(msgspec.Struct, frozen=True):
    """A label with its values in words, and how many there are at most."""

    name: str
    values: str
    most: int


class Metric(msgspec.Struct, frozen=True):
    """One metric as Prometheus shows it: a counter's name ends with _total.

    The name says the unit, except where `trl` gives TRL's name of the same quantity, or the unit
    is `1` (a share, a flag, a reward).
    """

    name: str
    kind: Kind
    unit: str
    about: str
    labels: tuple[Label, ...] = ()
    buckets: tuple[float, ...] = ()
    trl: str = ""

    @property
    def base(self) -> str:
        """The name without a counter's _total."""
        return self.name.removesuffix("_total") if self.kind == "counter" else self.name

    @property
    def label_names(self) -> tuple[str, ...]:
        """Names of the labels, in order."""
        return tuple(label.name for label in self.labels)

    @property
    def series_names(self) -> tuple[str, ...]:
        """Names that a query can use."""
        if self.kind == "summary":
            return (f"{self.name}_sum", f"{self.name}_count")
        if self.kind == "histogram":
            # Values below 0 would let a sum fall, which no counter may.
            total = () if self.buckets[0] < 0 else (f"{self.name}_sum",)
            return (*total, f"{self.name}_count", f"{self.name}_bucket")
        return (self.name,)

    @property
    def most_series(self) -> int:
        """Series of one process at most."""
        each = {"counter": 1, "gauge": 1, "summary": 2, "histogram": len(self.buckets) + 3}
        return each[self.kind] * prod(label.most for label in self.labels)


class Group(msgspec.Struct, frozen=True):
    """The metrics of one kind of process. `per_actor`: there is one such process per actor."""

    source: str
    about: str
    metrics: tuple[Metric, ...]
    per_actor: bool = False

    @property
    def most_series(self) -> int:
        """Series of one process at most."""
        return sum(metric.most_series for metric in self.metrics)


def counter(name: str, unit: str, about: str, *labels: Label) -> Metric:
    """It only rises."""
    return Metric(name, "counter", unit, about, labels)


def gauge(name: str, unit: str, about: str, *labels: Label, trl: str = "") -> Metric:
    """It is what it is now."""
    return Metric(name, "gauge", unit, about, labels, trl=trl)


def summary(name: str, unit: str, about: str, *labels: Label) -> Metric:
    """Sum and count: two series where a histogram has seventeen."""
    return Metric(name, "summary", unit, about, labels)


def histogram(
    name: str, unit: str, about: str, *labels: Label, buckets: Sequence[float] = SECONDS
) -> Metric:
    """Counts by bucket, sum and count."""
    return Metric(name, "histogram", unit, about, labels, tuple(buckets))
