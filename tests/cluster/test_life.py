"""The main job in real pods: from REST to Complete, with actors that come, move and go."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.progress import step_reports
from ebbtide import paths
from ebbtide.api import Job
from ebbtide.client import Client
from tests.cluster.figures import Figures, actors_stayed
from tests.cluster.running import DEEP, Course, Witnessed, follow, judged, submit, tiny, witness
from tests.e2e.jobs import emulation, training
from tests.worlds.chart import CHART, SYSTEM
from tests.worlds.cluster import RELEASE, Cluster, earlier_chart, install, ready, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
ROLES = ("planner", "learner", "prefill", "decode", "reward")


@dataclass(frozen=True)
class Ended:
    """A job that ran to its end, and what was seen of it."""

    course: Course
    job: Job
    seen: Witnessed


@pytest.fixture(scope="module")
def ended(installed: Cluster, client: Client, figures: Figures) -> Ended:
    with witness(installed, "main") as seen:
        began = time.monotonic()
        course = submit(client, "main", tiny())
        until(lambda: installed.pods("main"), seconds=60, what="a pod")
        figures.note("from submitting to the first pod", time.monotonic() - began, most=2)
        job = follow(client, course, seconds=600)
        until(lambda: not installed.pods("main", "decode"), seconds=60, what="no actors")
    stayed = actors_stayed(installed, course, seen)
    figures.note("from the last rollout until no actor runs", stayed, most=5)
    return Ended(course, job, seen)


def test_everything_of_the_installation_is_ready(installed: Cluster) -> None:
    pods = installed.objects("pods", SYSTEM, "app.kubernetes.io/component!=test")
    names = {pod["metadata"]["labels"]["app.kubernetes.io/component"] for pod in pods}
    assert names == {"operator", "gateway", "nats", "valkey"}
    assert all(ready(pod) for pod in pods)


def test_the_charts_own_test_passes(installed: Cluster) -> None:
    assert "Succeeded" in installed.helm("test", RELEASE, "-n", SYSTEM, "--timeout", "3m")


def test_the_job_is_complete_with_its_cost(ended: Ended) -> None:
    assert ended.job.state == "Complete", ended.job.message
    assert ended.job.status["cost"]["accrued"] > 0


def test_every_role_was_at_work_in_a_pod_of_its_own(ended: Ended) -> None:
    pods = {role: len(ended.seen.names(role)) for role in ROLES}
    assert all(pods.values()), pods
    assert pods["learner"] == 2


def test_actors_came_from_none_and_went_to_none(installed: Cluster, ended: Ended) -> None:
    wanted = ended.seen.wanted
    assert (wanted[0], wanted[-1]) == (0, 0)
    assert max(wanted) >= 1
    until(lambda: not installed.pods("main", "decode"), seconds=180, what="no actors")


def test_samples_came_from_actors_in_pods(installed: Cluster, ended: Ended) -> None:
    reports = step_reports(installed.store, ended.course.uid)
    at_work = {actor.name for report in reports for actor in report.actors if actor.samples}
    assert at_work
    assert at_work <= ended.seen.names("decode")


def test_prompts_of_the_service_reach_actors_in_other_pods(
    installed: Cluster, ended: Ended
) -> None:
    reports = step_reports(installed.store, ended.course.uid)
    assert sum(report.prefill.in_service for report in reports) > 0
    assert sum(report.prefill.imported for report in reports) > 0


def test_no_sample_was_lost_or_doubled(installed: Cluster, ended: Ended) -> None:
    verdict = judged(installed, ended.course)
    assert verdict.faults() == {}
    assert verdict.accepted == 4 * 6 * 4


def test_samples_move_between_pods(installed: Cluster, client: Client) -> None:
    # Of an engine whose answers take seconds on any machine: who moves is looked for once a second.
    slow = emulation(meanTokens=40.0, sigma=1.0, tpotMs=60.0)
    actors = {"engine": "emulated", "emulation": slow, "replicas": 3, "maxReplicas": 3}
    rule = {"scaling": "static", "migration": "tau", "tau": 0.3}
    sizes = training(totalSteps=3, promptsPerStep=6, maxResponseTokens=160)
    alone = {"ranks": 1, "device": "cpu"}
    spec = tiny(training=sizes, decode=actors, planner=rule, learner=alone, prefill=colocated())
    course = submit(client, "moved", spec)
    assert follow(client, course, seconds=600).state == "Complete"
    reports = step_reports(installed.store, course.uid)
    assert sum(r.migration.recomputed + r.migration.with_kv for r in reports if r.migration) > 0
    assert judged(installed, course).faults() == {}


def colocated() -> dict[str, object]:
    return {"mode": "colocated"}


def test_checkpoints_lie_on_the_volume(installed: Cluster, ended: Ended) -> None:
    uid, attempt = ended.course.uid, ended.job.status["attempt"]
    assert (installed.store / paths.policy(uid, attempt, 4) / "config.json").is_file()
    assert len(list((installed.store / paths.manifests(uid, attempt)).iterdir())) >= 2


def test_logs_outlive_their_pods(installed: Cluster, client: Client, ended: Ended) -> None:
    until(lambda: not installed.pods("main"), seconds=180, what="no pods")
    for role in ("planner", "learner", "prefill", "decode", "reward"):
        lines = client.logs("main", role=role).items
        assert lines, role
        assert {line.role for line in lines} == {role}


def test_only_the_planner_has_a_token(ended: Ended) -> None:
    assert {name.rpartition("-planner-")[0] for name in ended.seen.with_token} == {"main"}


@pytest.mark.long
def test_a_suspended_job_holds_no_pod_and_a_resumed_one_ends(
    installed: Cluster, client: Client
) -> None:
    course = submit(client, "rested", tiny(decode=two_actors()))
    follow(client, course, seconds=300, until=lambda job: bool(job.status.get("policy")))
    client.suspend("rested")
    follow(client, course, seconds=180, until=lambda job: job.state == "Suspended")
    assert installed.pods("rested") == []
    client.resume("rested")
    assert follow(client, course, seconds=400).state == "Complete"
    assert judged(installed, course).faults() == {}


def two_actors() -> dict[str, object]:
    return {"engine": "torch", "device": "cpu", "replicas": 2, "maxReplicas": 2}


@pytest.mark.long
def test_an_upgrade_from_the_chart_before_keeps_a_running_job(
    installed: Cluster, client: Client, tmp_path: Path
) -> None:
    install(installed, earlier_chart(tmp_path), "--skip-schema-validation")  # values of today
    try:
        long = training(totalSteps=14, promptsPerStep=3, maxResponseTokens=96)
        course = submit(client, "kept", tiny(model=DEEP, training=long, decode=two_actors()))
        follow(client, course, seconds=300, until=lambda job: job.state == "Running")
        before = {pod["metadata"]["uid"] for pod in installed.pods("kept", "learner")}
    finally:  # tests that follow are of the chart of today
        install(installed, CHART, "--set", "operator.logLevel=debug,gateway.logLevel=debug")
    assert not follow(client, course, seconds=60, until=lambda _: True).terminal
    assert {pod["metadata"]["uid"] for pod in installed.pods("kept", "learner")} == before
    assert follow(client, course, seconds=600).state == "Complete"
    assert judged(installed, course).faults() == {}
    assert installed.pods("kept") == []
