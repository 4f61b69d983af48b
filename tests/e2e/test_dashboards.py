"""A real Prometheus scrapes a real run: every panel has data, totals agree, series stay few."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from benchmarks.progress import step_reports
from benchmarks.stack import Stack, until
from ebbtide.catalogue import METRICS
from ebbtide.dashboards import BOARDS
from ebbtide.reports import StepReport, summarise
from tests.e2e.jobs import Material, Spec, emulation, first_half, training
from tests.e2e.prometheus import Prometheus, prometheus

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
NAME, STEPS, PRICE = "seen", 8, 36.0
ABSENT = {
    "the job has prefill.mode service.": "the emulated engine has no KV",
    "samples of the job moved while they ran.": "two actors, static",
    "the job's algorithm is ppo.": "it is grpo",
    "an answer had a fault that its reward names.": "no rule of this job names one",
    "a reward component failed on an answer.": "none did",
    "a pod did not leave in time.": "all did",
    "the job has prices, and its reward has risen.": "it learns for eight steps",
}
"""Needs of panels that this run does not meet, and why."""
ACTORS, MOST = 64, 2000
PANELS = [panel for board in BOARDS for panel in board.panels]
OWN = f'rlhf_job="{NAME}"'


@dataclass(frozen=True)
class Run:
    """The job has ended; Prometheus has seen all of it."""

    stack: Stack
    seen: Prometheus
    start: float
    end: float
    reports: list[StepReport]

    def ever(self, expr: str) -> bool:
        filled = expr.replace("$namespace", "default").replace("$rlhf_job", NAME)
        filled = filled.replace("$__rate_interval", "10s")
        return self.seen.ever(filled, self.start, self.end)

    def series(self, selector: str) -> list[dict[str, str]]:
        """Labels of every series that there was during the run."""
        span: dict[str, str | float] = {"start": self.start, "end": self.end, "match[]": selector}
        found: list[dict[str, str]] = self.seen.get("series", **span)
        return found


def a_job(material: Material) -> Spec:
    source = {"type": "jsonl", "uri": str(material.prompts)}
    pools = ("decode", "learner", "planner", "reward")
    parts = material.spec()
    return parts | {
        "dataset": {"train": source, "eval": source, "maxPromptTokens": 32},
        "training": training(totalSteps=STEPS, promptsPerStep=4, maxResponseTokens=48),
        "evaluation": {"everySteps": 2, "prompts": 4},
        "decode": parts["decode"]
        | {"emulation": emulation(meanTokens=24.0, tpotMs=40.0)}
        | {"pool": "decode"},
        "reward": {"components": [first_half()], "pool": "reward"},
        "learner": {"ranks": 1, "device": "cpu", "pool": "learner"},
        "planner": {"pool": "planner"},
        "prices": [{"pool": pool, "perHour": PRICE} for pool in pools],
        "budget": {"maxCost": 100.0, "onExceed": "Warn"},
    }


@pytest.fixture(scope="module")
def run(
    stack: Stack, material: Material, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    with prometheus(stack, tmp_path_factory.mktemp("prometheus")) as seen:
        start = time.time()
        job = stack.submit(NAME, a_job(material))
        ended = stack.finished(NAME, seconds=200)
        assert ended.state == "Complete", ended.message
        reports = step_reports(stack.blobs, job.metadata.uid)
        steps = f"ebbtide_job_steps_total{{{OWN}}}"
        until(lambda: seen.value(steps) == len(reports), seconds=20, what="the last scrape")
        yield Run(stack, seen, start, time.time(), reports)


def test_every_query_of_every_panel_has_data(run: Run) -> None:
    empty = [
        f"{panel.title}: {query.expr}"
        for panel in PANELS
        if panel.needs not in ABSENT
        for query in panel.queries
        if not run.ever(query.expr)
    ]
    assert empty == []


def test_what_is_expected_to_be_absent_is_needed_by_some_panel() -> None:
    assert {panel.needs for panel in PANELS} >= set(ABSENT)


def test_totals_are_those_of_the_run(run: Run) -> None:
    whole = summarise(run.reports)
    found = {
        name: run.seen.value(f"sum(ebbtide_job_{name}{{{OWN}}})")
        for name in ("steps_total", "expected_samples_total", "samples_total")
    }
    assert found == {
        "steps_total": STEPS + 1,  # and the closing evaluation
        "expected_samples_total": whole.samples_expected,
        "samples_total": whole.samples_expected,
    }
    tokens = run.seen.value(f'ebbtide_job_tokens_total{{{OWN},kind="response"}}')
    assert tokens == whole.response_tokens
    phases = run.seen.value(f"sum(ebbtide_job_phase_seconds_total{{{OWN}}})")
    assert phases == pytest.approx(sum(whole.phases.model_dump().values()))


def test_the_cost_is_held_time_times_its_price(run: Run) -> None:
    def settled() -> bool:
        held = run.seen.value(f"sum(ebbtide_job_held_seconds_total{{{OWN}}})")
        cost = run.seen.value(f"sum(ebbtide_job_cost_total{{{OWN}}})")
        said = run.stack.client.cost(NAME)
        same = said.total is not None and cost == pytest.approx(said.total)
        return bool(same and cost == pytest.approx(held * PRICE / 3600))

    until(settled, seconds=20, what="equal costs")


def test_every_series_is_one_of_the_catalogue(run: Run) -> None:
    known = {name: metric for metric in METRICS.values() for name in metric.series_names}
    target = {"__name__", "job", "instance", "namespace", "rlhf_job", "role", "pod", "le"}
    unknown = [
        found
        for found in run.series('{__name__=~"ebbtide_.+"}')
        if set(found) - target - set(known[found["__name__"]].label_names)
    ]
    assert unknown == []


def test_a_job_with_64_actors_would_stay_within_its_series(run: Run) -> None:
    series = run.series(f'{{__name__=~"(ebbtide|process)_.+",{OWN}}}')  # not Prometheus's own
    actors = {one["pod"] for one in series if one.get("role") == "decode" and "pod" in one}
    each = sum(one.get("pod") in actors for one in series) / len(actors)
    assert len(series) + (ACTORS - len(actors)) * each <= MOST


def test_every_rule_is_evaluated_without_an_error(run: Run) -> None:
    groups = run.seen.get("rules")["groups"]
    states = {rule["name"]: rule["health"] for group in groups for rule in group["rules"]}
    assert len(states) == 19
    assert set(states.values()) <= {"ok", "unknown"}


def test_every_target_answers(run: Run) -> None:
    roles = {
        labels[0] for labels in run.seen.now('sum by (role) (max_over_time(up{role!=""}[5m]))')
    }
    assert roles >= {"gateway", "operator"}
