"""Figures of jobs as metrics, and where their pods can be scraped (pure)."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.registry import Collector

from ebbtide import labels
from ebbtide.catalogue import METRICS
from ebbtide.ports import Resource
from ebbtide.status import Progress, read
from ebbtide.usage import Usage
from services.gateway.core.cost import Account, grouped
from services.gateway.core.state import STATES, state_of
from services.gateway.core.tally import Point, Tally


class Facts(msgspec.Struct, frozen=True):
    """All that a job's figures are drawn from."""

    job: Resource
    tally: Tally
    usages: tuple[Usage, ...]
    account: Account


class Exposition(Collector):
    """What a registry collects: the families of all points."""

    def __init__(self, families: Iterable[Family]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Family]:
        """All families, in order of their names."""
        return iter(sorted(self._families, key=lambda family: family.name))


def exposition(jobs: Sequence[Resource], figures: Iterable[Facts]) -> Exposition:
    """Metrics of `jobs` by state, and the figures of some of them."""
    values: defaultdict[str, dict[tuple[str, ...], float]] = defaultdict(dict)
    for point in _by_state(jobs):
        values[point.name][point.labels] = point.value
    for facts in figures:
        own = (facts.job.metadata.namespace, facts.job.metadata.name)
        for point in points(facts):
            values[point.name][own + point.labels] = point.value
    return Exposition(_family(name, found) for name, found in values.items())


def _by_state(jobs: Sequence[Resource]) -> Iterator[Point]:
    counted = Counter((job.metadata.namespace, state_of(job).name) for job in jobs)
    for namespace in {job.metadata.namespace for job in jobs}:
        for state in STATES:
            yield Point("ebbtide_jobs", counted[namespace, state], (namespace, state))


def _family(name: str, values: dict[tuple[str, ...], float]) -> Family:
    metric = METRICS[name]
    kind = CounterMetricFamily if metric.kind == "counter" else GaugeMetricFamily
    family = kind(metric.base, metric.about, labels=metric.label_names)
    for names, value in values.items():
        family.add_metric(names, value)
    return family


def points(facts: Facts) -> Iterator[Point]:
    """The figures of one job."""
    spec = facts.job.spec
    progress = read(facts.job.status, "progress", Progress)
    training = spec.get("training", {})
    yield Point("ebbtide_job_state", 1.0, (state_of(facts.job).name,))
    target = progress.total_steps or training.get("totalSteps", 0)
    yield Point("ebbtide_job_target_steps", target)
    yield from facts.tally.points()
    yield from _money(facts)


def _money(facts: Facts) -> Iterator[Point]:
    spec = facts.job.spec
    currency = str(spec.get("currency", "USD"))
    held: defaultdict[tuple[str, str], float] = defaultdict(float)
    for usage in facts.usages:
        held[usage.role, usage.pool] += usage.seconds
    for names, seconds in held.items():
        yield Point("ebbtide_job_held_seconds_total", seconds, names)
    for part in grouped(facts.account.lines, ("role", "cause")):
        names = (part["role"], part["cause"])
        yield Point("ebbtide_job_cause_seconds_total", part["seconds"], names)
        if part["cost"] is not None:
            yield Point("ebbtide_job_cost_total", part["cost"], (*names, currency))
    yield Point("ebbtide_job_unpriced_seconds_total", facts.account.unpriced)
    budget = spec.get("budget") or {}
    if "maxCost" in budget:
        yield Point("ebbtide_job_budget_cost", budget["maxCost"], (currency,))


def targets(pods: Iterable[Resource]) -> list[dict[str, Any]]:
    """Pods that answer at /metrics, in the form of Prometheus's HTTP service discovery."""
    return [_target(pod) for pod in pods if pod.status.get("healthPort") and _runs(pod)]


def _runs(pod: Resource) -> bool:
    return pod.status.get("phase") == "Running"


def _target(pod: Resource) -> dict[str, Any]:
    host = pod.status.get("podIP") or "127.0.0.1"
    own = pod.metadata.labels
    return {
        "targets": [f"{host}:{pod.status['healthPort']}"],
        "labels": {
            "namespace": pod.metadata.namespace,
            "rlhf_job": own.get(labels.JOB, ""),
            "role": own.get(labels.ROLE, ""),
            "pod": pod.metadata.name,
        },
    }


def process_target(address: str, role: str) -> dict[str, Any]:
    """The target of a process that is no pod of a job."""
    return {"targets": [address], "labels": {"role": role, "pod": role}}
