"""vLLM's own metrics, shown beside the actor's."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import REGISTRY
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector, CollectorRegistry

_PREFIX = "vllm:"


class PassedThrough(Collector):
    """Everything called `vllm:...` in the registry that vLLM writes to, the process's own."""

    def __init__(self, source: CollectorRegistry = REGISTRY) -> None:
        self._source = source

    def collect(self) -> Iterator[Metric]:
        return (found for found in self._source.collect() if found.name.startswith(_PREFIX))

    def describe(self) -> Iterator[Metric]:
        """Nothing is known beforehand: vLLM registers when it starts."""
        return iter(())
