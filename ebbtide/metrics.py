"""Prometheus metrics of one process: a registry that is passed on, never a global one.

`__main__` makes the registry, components make their metrics on it through
`ebbtide.catalogue.Instruments`, and `ebbtide.runtime` serves it at /metrics.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

_KEPT = ("process_cpu_seconds", "process_resident_memory_bytes")


class Uncounted(CollectorRegistry):
    """A registry on which `ebbtide.catalogue` makes metrics that count nothing."""


def new_registry(*, counts: bool = True) -> CollectorRegistry:
    """A registry with the process's own figures: CPU seconds, resident bytes."""
    registry = (CollectorRegistry if counts else Uncounted)(auto_describe=True)
    registry.register(_Own(ProcessCollector(registry=None)))
    return registry


def render(registry: Collector | CollectorRegistry) -> tuple[bytes, str]:
    """The exposition text and its content type."""
    return generate_latest(_Lean(registry)), CONTENT_TYPE_LATEST


class _Own(Collector):
    """The process's figures that dashboards use; each more is one more series per actor."""

    def __init__(self, inner: Collector) -> None:
        self._inner = inner

    def collect(self) -> Iterator[Metric]:
        return (metric for metric in self._inner.collect() if metric.name in _KEPT)


class _Lean:
    """Without when each counter was made: one more series for every one that counts."""

    def __init__(self, inner: Collector | CollectorRegistry) -> None:
        self._inner = inner

    def collect(self) -> Iterator[Metric]:
        for metric in self._inner.collect():
            samples = [s for s in metric.samples if not s.name.endswith("_created")]
            slim = Metric(metric.name, metric.documentation, metric.type, metric.unit)
            slim.samples = samples
            yield slim
