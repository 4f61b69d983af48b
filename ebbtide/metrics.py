"""Prometheus metrics of one process: a registry that is passed on, never a global one.

`__main__` makes the registry, components make their metrics on it in their constructors, and
`ebbtide.runtime` serves it at /metrics. Names are `ebbtide_<noun>_<unit>`; labels are few and
bounded (role, cause, outcome; never a sample's key).
"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
"""Histogram bounds for durations, in seconds."""


def new_registry() -> CollectorRegistry:
    """A registry with the process's own figures (CPU seconds, resident bytes, open files)."""
    registry = CollectorRegistry(auto_describe=True)
    ProcessCollector(registry=registry)
    return registry


def render(registry: CollectorRegistry) -> tuple[bytes, str]:
    """The exposition text and its content type."""
    return generate_latest(registry), CONTENT_TYPE_LATEST
