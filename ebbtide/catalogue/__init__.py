"""Every metric of ebbtide: the one source of names, units, labels and meanings.

Processes make their metrics through `Instruments`, so what is not here cannot be shown;
docs/metrics.md is generated from here, and dashboards and rules are checked against it.
"""

from __future__ import annotations

from typing import Self, cast

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Summary

from ebbtide.catalogue.actors import DECODE, LEARNER, PREFILL, REWARD
from ebbtide.catalogue.base import SECONDS, Group, Kind, Label, Metric
from ebbtide.catalogue.control import GATEWAY, OPERATOR, PLANNER
from ebbtide.catalogue.jobs import HANDED, JOBS
from ebbtide.metrics import Uncounted

__all__ = [
    "DECODE",
    "GATEWAY",
    "GROUPS",
    "Group",
    "HANDED",
    "Instruments",
    "JOBS",
    "LEARNER",
    "Label",
    "METRICS",
    "Metric",
    "OPERATOR",
    "PLANNER",
    "PREFILL",
    "REWARD",
    "SECONDS",
]

GROUPS = (JOBS, PLANNER, DECODE, PREFILL, REWARD, LEARNER, OPERATOR, GATEWAY)
METRICS = {metric.name: metric for group in GROUPS for metric in group.metrics}


class _Nothing:
    """Stands for any metric where nothing is counted."""

    def labels(self, *_: object) -> Self:
        return self

    def inc(self, _: float = 1) -> None:
        return

    def set(self, _: float) -> None:
        return

    def observe(self, _: float) -> None:
        return


_NOTHING = _Nothing()


class Instruments:
    """Makes the metrics of `group` on `registry`, each by its name in the catalogue."""

    def __init__(self, registry: CollectorRegistry, group: Group) -> None:
        self._registry, self._counts = registry, not isinstance(registry, Uncounted)
        self._known = {metric.name: metric for metric in group.metrics}

    def counter(self, name: str) -> Counter:
        """The counter of that name."""
        metric = self._metric(name, "counter")
        if not self._counts:
            return cast("Counter", _NOTHING)
        return Counter(metric.base, metric.about, metric.label_names, registry=self._registry)

    def gauge(self, name: str) -> Gauge:
        """The gauge of that name."""
        metric = self._metric(name, "gauge")
        if not self._counts:
            return cast("Gauge", _NOTHING)
        return Gauge(name, metric.about, metric.label_names, registry=self._registry)

    def summary(self, name: str) -> Summary:
        """The summary of that name."""
        metric = self._metric(name, "summary")
        if not self._counts:
            return cast("Summary", _NOTHING)
        return Summary(name, metric.about, metric.label_names, registry=self._registry)

    def histogram(self, name: str) -> Histogram:
        """The histogram of that name."""
        metric = self._metric(name, "histogram")
        if not self._counts:
            return cast("Histogram", _NOTHING)
        return Histogram(
            name,
            metric.about,
            metric.label_names,
            buckets=metric.buckets,
            registry=self._registry,
        )

    def _metric(self, name: str, kind: Kind) -> Metric:
        metric = self._known.get(name)
        assert metric is not None, f"{name} is not in the catalogue (ebbtide/catalogue)"
        assert metric.kind == kind, f"{name} is a {metric.kind}"
        return metric
