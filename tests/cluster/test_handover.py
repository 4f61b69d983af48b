"""Keys and values from pod to pod by NIXL: samples go on elsewhere without being computed anew."""

from __future__ import annotations

import pytest

from benchmarks.progress import step_reports
from ebbtide.client import Client
from ebbtide.reports import StepReport
from tests.cluster.running import DEEP, Course, Spec, follow, judged, submit, tiny
from tests.e2e.jobs import training
from tests.worlds.cluster import Cluster

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
STEPS, PROMPTS, GROUP = 2, 4, 4


def moving() -> Spec:
    """Who moves is looked for once a second."""
    torch = {"engine": "torch", "device": "cpu", "kvTransfer": "nixl"}
    return tiny(
        model=DEEP,
        training=training(totalSteps=STEPS, promptsPerStep=PROMPTS, maxResponseTokens=440),
        decode=torch | {"replicas": 2, "maxReplicas": 2},
        planner={"scaling": "static", "migration": "tau", "tau": 0.3},
        learner={"ranks": 1, "device": "cpu"},
        prefill={"mode": "colocated"},
    )


@pytest.fixture(scope="module")
def course(installed: Cluster, client: Client) -> Course:
    """A job that ended."""
    made = submit(client, "handed-over", moving())
    ended = follow(client, made, seconds=500)
    assert ended.state == "Complete", ended.message
    return made


@pytest.fixture(scope="module")
def reports(installed: Cluster, course: Course) -> list[StepReport]:
    return step_reports(installed.store, course.uid)


def test_samples_move_between_pods_with_their_kv(reports: list[StepReport]) -> None:
    moves = [report.migration for report in reports if report.migration]
    assert sum(report.with_kv for report in moves) > 0
    crossings = {(move.source, move.target) for report in moves for move in report.moves}
    assert crossings
    assert all(source != target for source, target in crossings)


def test_what_was_handed_over_is_not_computed_again(
    client: Client, course: Course, reports: list[StepReport]
) -> None:
    moved = sum(report.migration.kv_tokens for report in reports if report.migration)
    assert sum(report.prefill.imported for report in reports) >= moved > 0
    told = "".join(line.text for line in client.logs(course.name, role="decode").items)
    assert told
    assert [words for words in ("KV not pulled", "no NIXL") if words in told] == []


def test_no_sample_is_lost_or_doubled_on_its_way(installed: Cluster, course: Course) -> None:
    verdict = judged(installed, course)
    assert verdict.faults() == {}
    assert verdict.accepted == STEPS * PROMPTS * GROUP
