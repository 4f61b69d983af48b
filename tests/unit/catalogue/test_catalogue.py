"""Every metric comes from the catalogue, and its name says its unit."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from ebbtide.catalogue import DECODE, GROUPS, METRICS, Group, Instruments, Metric
from ebbtide.metrics import new_registry, render

ROOT = Path(__file__).parents[3]
UNNAMED = ("1", "nats", "version", "cost")


@pytest.mark.parametrize("metric", METRICS.values(), ids=lambda metric: metric.name)
def test_a_name_says_the_unit(metric: Metric) -> None:
    assert re.fullmatch(r"ebbtide_[a-z0-9_]+", metric.name)
    assert metric.name.endswith("_total") == (metric.kind == "counter")
    if not metric.trl and metric.unit not in UNNAMED:
        assert metric.base == f"ebbtide_{metric.unit}" or metric.base.endswith(f"_{metric.unit}")


def test_no_name_is_in_two_groups() -> None:
    assert len(METRICS) == sum(len(group.metrics) for group in GROUPS)


def test_no_other_module_makes_metrics_of_its_own() -> None:
    made = re.compile(r"from prometheus_client import .*\b(Counter|Gauge|Histogram|Summary)\b")
    folders = [ROOT / name for name in ("ebbtide", "services", "operator")]
    sources = [path for folder in folders for path in folder.rglob("*.py")]
    found = [p.parent.name for p in sources if made.search(p.read_text("utf-8"))]
    assert found == ["catalogue"]


@pytest.mark.parametrize("group", GROUPS[1:], ids=lambda group: group.source)
def test_a_process_shows_no_more_series_than_the_catalogue_says(group: Group) -> None:
    registry = CollectorRegistry()
    make = Instruments(registry, group)
    for metric in group.metrics:
        made = getattr(make, metric.kind)(metric.name)
        if metric.labels:
            made.labels(*metric.label_names)
    text = render(registry)[0].decode()
    names = {
        line.partition("{")[0].partition(" ")[0] for line in text.splitlines() if line[0] != "#"
    }
    assert names == {name for metric in group.metrics for name in metric.series_names}


@pytest.mark.parametrize("group", GROUPS[1:], ids=lambda group: group.source)
def test_a_process_that_does_not_count_shows_its_own_figures_alone(group: Group) -> None:
    registry = new_registry(counts=False)
    make = Instruments(registry, group)
    for metric in group.metrics:
        made = getattr(make, metric.kind)(metric.name).labels(*metric.label_names)
        for use in {"counter": (made.inc,), "gauge": (made.set,)}.get(metric.kind, (made.observe,)):
            use(1.0)
    text = render(registry)[0].decode()
    assert "ebbtide_" not in text
    assert "process_cpu_seconds_total" in text


def test_what_is_not_in_the_catalogue_cannot_be_made() -> None:
    with pytest.raises(AssertionError, match="not in the catalogue"):
        Instruments(CollectorRegistry(), DECODE).counter("ebbtide_decode_secrets_total")


def test_a_job_with_64_actors_stays_within_its_2000_series() -> None:
    """With all that a sound actor shows and its process's own two.

    It has not five of the reasons for an end, and no other way for KV than was asked for.
    """
    job = sum(g.most_series for g in GROUPS if g.source in ("jobs", "planner", "learner"))
    one_scorer = 3 * (20 + 12) + 10
    assert 64 * (DECODE.most_series - 5 - 1 + 2) + job + one_scorer <= 2000


def test_a_process_shows_its_own_cpu_and_memory_and_no_times_of_making() -> None:
    text = render(new_registry())[0].decode()
    assert "process_cpu_seconds_total" in text
    assert "process_open_fds" not in text
    assert "_created" not in text
