"""A real Prometheus scrapes a real run: every panel has data, totals agree, series stay few."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.progress import step_reports
from benchmarks.stack import Stack, running, until
from ebbtide.catalogue import METRICS
from ebbtide.dashboards import BOARDS, Panel
from ebbtide.reports import StepReport, summarise
from tests.e2e.jobs import Material, Spec, emulation, first_half, training
from tests.e2e.prometheus import Prometheus, prometheus
from tests.e2e.tiny import write_model
from tests.worlds.away import away_at_first
from tests.worlds.spans import receiver

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]
NAME, STEPS, PRICE = "seen", 8, 36.0
OTHER = "moved"
"""A job with everything that the first one lacks: KV, a critic, faults, an actor that hangs."""
DRAIN = "a pod did not leave in time."
ABSENT = {
    "the job has prefill.mode service.",
    "samples of the job moved while they ran.",
    "the job's algorithm is ppo.",
    "an answer had a fault that its reward names.",
    "a reward component failed on an answer.",
    DRAIN,
    "the job has prices, and its reward has risen.",
}
"""Needs of panels that the first run does not meet, and the other one does."""
REFUSED = 3
"""Answers that the first run's HTTP scorer refuses before it is there."""
ACTORS, MOST = 64, 2000
PANELS = [panel for board in BOARDS for panel in board.panels]
LATE = [panel for panel in PANELS if panel.needs in ABSENT]
Told = tuple[str, list[tuple[str, Any]]]
OWN = f'rlhf_job="{NAME}"'


@dataclass(frozen=True)
class Run:
    """The job has ended; Prometheus has seen all of it."""

    stack: Stack
    seen: Prometheus
    start: float
    end: float
    reports: list[StepReport]

    def empty(self, panels: Sequence[Panel], job: str = NAME) -> list[str]:
        """Queries without any data from the beginning until now."""
        return [
            f"{panel.title}: {query.expr}"
            for panel in panels
            for query in panel.queries
            if not self.seen.ever(filled(query.expr, job), self.start, time.time())
        ]

    def series(self, selector: str) -> list[dict[str, str]]:
        """Labels of every series that there was during the run."""
        span: dict[str, str | float] = {"start": self.start, "end": self.end, "match[]": selector}
        found: list[dict[str, str]] = self.seen.get("series", **span)
        return found


def filled(expr: str, job: str) -> str:
    """With its variables as Grafana has them for this job."""
    named = expr.replace("$namespace", "default").replace("$rlhf_job", job)
    return named.replace("$__rate_interval", "10s")


def a_job(material: Material, scorer: str) -> Spec:
    """All roles in pools with a price; the scorer at this address adds nothing to the reward."""
    away = {"type": "http", "name": "away", "weight": 0.0, "uri": scorer, "tries": 1}
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
        "reward": {"components": [first_half(), away], "pool": "reward", "retries": 2 * REFUSED},
        "learner": {"ranks": 1, "device": "cpu", "pool": "learner"},
        "planner": {"pool": "planner"},
        "prices": [{"pool": pool, "perHour": PRICE} for pool in pools],
        "budget": {"maxCost": 100.0, "onExceed": "Warn"},
    }


@pytest.fixture(scope="module")
def told() -> Iterator[Told]:
    """Where spans go, and what has come."""
    with receiver() as found:
        yield found


@pytest.fixture(scope="module")
def stack(told: Told, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """One whose processes tell of their work."""
    environ = {"EBBTIDE_OTLP_URL": told[0], "EBBTIDE_REWARD_PRIVATE_NETWORKS": "127.0.0.0/8"}
    with running(tmp_path_factory.mktemp("stack"), environ=environ) as found:
        yield found


@pytest.fixture(scope="module")
def run(
    stack: Stack, material: Material, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Run]:
    folder = tmp_path_factory.mktemp("prometheus")
    with prometheus(stack, folder) as seen, away_at_first(REFUSED) as scorer:
        start = time.time()
        job = stack.submit(NAME, a_job(material, scorer))
        ended = stack.finished(NAME, seconds=200)
        assert ended.state == "Complete", ended.message
        reports = step_reports(stack.blobs, job.metadata.uid)
        steps = f"ebbtide_job_steps_total{{{OWN}}}"
        until(lambda: seen.value(steps) == len(reports), seconds=20, what="the last scrape")
        yield Run(stack, seen, start, time.time(), reports)


def another_job(model: Path, prompts: Path) -> Spec:
    """Three actors of the torch engine, whose samples move; answers that begin late are faulty."""
    component = first_half() | {"extract": "^([a-m])"}
    return Material(model, prompts).spec(
        algorithm={"type": "ppo", "groupSize": 4},
        training=training(totalSteps=500, promptsPerStep=6, maxResponseTokens=160),
        decode={"engine": "torch", "device": "cpu", "replicas": 3, "drainSeconds": 3.0},
        reward={"components": [component]},
        prefill={"mode": "service", "device": "cpu"},
        planner={"migration": "tau", "tau": 0.3},
        learner={"ranks": 1, "device": "cpu"},
        prices=[{"pool": "default", "perHour": PRICE}],
    )


def await_data(run: Run, panels: Sequence[Panel], *, seconds: float) -> None:
    """Until each of them has had data of the other job."""
    left = list(panels)

    def all_shown() -> bool:
        time.sleep(3.0)
        left[:] = [panel for panel in left if run.empty([panel], OTHER)]
        return not left

    until(all_shown, seconds=seconds, what=lambda: f"data of {run.empty(left, OTHER)}")


@pytest.fixture(scope="module")
def other(run: Run, material: Material, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The other job has shown all it has: cancelled, with an actor that had to be killed."""
    model = write_model(tmp_path_factory.mktemp("other") / "model", more=110)
    run.stack.submit(OTHER, another_job(model, material.prompts))
    await_data(run, [panel for panel in LATE if panel.needs != DRAIN], seconds=200)
    os.kill(run.stack.pods(OTHER, "decode")[0].pid, signal.SIGSTOP)
    run.stack.client.cancel(OTHER)
    await_data(run, LATE, seconds=60)
    run.stack.finished(OTHER, seconds=60)
    return OTHER


def test_every_query_of_every_panel_has_data(run: Run) -> None:
    assert run.empty([panel for panel in PANELS if panel not in LATE]) == []


def test_so_has_every_panel_of_what_needs_kv_a_critic_or_a_fault(run: Run, other: str) -> None:
    assert {panel.needs for panel in LATE} == ABSENT
    assert run.empty(LATE, other) == []


def test_every_role_tells_of_a_step_in_one_trace(other: str, told: Told) -> None:
    """The other job's: it has all roles, and its first step the starts of all pods."""
    _, got = told
    root = [span for _, span in got if span.name == "step 0"][-1]
    first = [(service, span) for service, span in got if span.trace_id == root.trace_id]
    names = {span.name.partition(" ")[0] for _, span in first}
    assert names >= {"step", "phase", "start", "compute", "decode", "score", "learn"}
    started = {service for service, span in first if span.name == "start pod"}
    roles = ("planner", "learner", "prefill", "decode", "reward")
    assert started == {f"ebbtide-{role}" for role in roles}


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


def test_each_refusal_of_a_scorer_is_a_try_that_failed(run: Run) -> None:
    own = f'{OWN},class="Http503"'
    assert run.seen.value(f"max_over_time(ebbtide_reward_errors_total{{{own}}}[10m])") == REFUSED


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
