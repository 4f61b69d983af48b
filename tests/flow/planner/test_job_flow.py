"""One small job from its start to its end: first undisturbed, then with faults."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ebbtide import labels, paths
from ebbtide.errors import Fenced
from ebbtide.objects import rfc3339
from ebbtide.ports import Meta, Resource
from ebbtide.reports import StepReport, summarise
from ebbtide.testing.clock import run_virtual
from ebbtide.wire import Accepted, Checkpointed, Committed, Dispatched
from tests.checker.lineage import replay
from tests.checker.verdict import examine
from tests.flow.planner.rig import UID, Rig

STEPS = 3
PLANNED = STEPS * 4 * 4 + 3 * 3


def run(scenario: Coroutine[Any, Any, None]) -> None:
    run_virtual(scenario)


def check(rig: Rig) -> None:
    """Every planned sample ended once; every step was committed."""
    evidence = rig.evidence()
    assert examine(evidence).faults() == {}
    lineage = replay(evidence.records, evidence.manifest)
    assert sorted(lineage.committed) == list(range(STEPS + 1))


def reports(rig: Rig) -> list[StepReport]:
    names = sorted(path for path in rig.blobs if path.startswith(paths.step_reports(UID)))
    return [StepReport.model_validate_json(rig.blobs[name]) for name in names]


def test_a_job_runs_from_start_to_finish(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        await rig.start()
        progress = await rig.outcome()
        await rig.of("planner").task
        await rig.clock.sleep(5.0)
        assert (progress["outcome"], progress["step"]) == ("complete", STEPS)
        check(rig)
        assert sum(isinstance(r, Dispatched) for r in rig.records()) == PLANNED
        job = summarise(reports(rig))
        assert (job.steps, job.samples_expected, job.samples_accepted) == (4, PLANNED, PLANNED)
        assert (job.samples_lost, job.samples_doubled) == (0, 0)
        assert len(rig.evidence().settled) == PLANNED
        ends = [r.started_at - r.phases.plan + r.seconds for r in reports(rig)]
        starts = [r.started_at - r.phases.plan for r in reports(rig)]
        assert starts[1:] == pytest.approx(ends[:-1], abs=1e-6)
        await rig.stop()

    run(scenario())


def test_the_status_tells_step_policy_and_cost(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        await rig.start()
        await rig.outcome()
        status = (await rig.cluster.get("RLHFJob", "default", "job")).status
        assert status["policy"]["version"] == STEPS
        assert status["policy"]["path"] == paths.policy(UID, 1, STEPS)
        assert 0 < status["cost"]["accrued"] < 100
        assert status["progress"]["evalReward"] is not None
        await rig.stop()

    run(scenario())


@pytest.mark.parametrize("role", ["planner", "decode", "reward", "learner"])
def test_a_killed_role_costs_time_and_no_sample(tmp_path: Path, role: str) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        await rig.start()
        for pause in (2.2, 3.1, 4.7):
            await rig.clock.sleep(pause)
            await rig.kill(role)
        progress = await rig.outcome()
        assert progress["outcome"] == "complete"
        check(rig)
        await rig.stop()

    run(scenario())


def test_a_bad_network_and_lost_stores_cost_time_and_no_sample(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path, seed=3)
        rig.chaos.lose, rig.chaos.repeat, rig.chaos.delay = 0.05, 0.1, 0.5
        await rig.start(actors=3)
        await rig.clock.sleep(4.0)
        rig.bus.empty()
        await rig.clock.sleep(3.0)
        rig.hot.flush()
        await rig.kill("decode")
        progress = await rig.outcome()
        assert progress["outcome"] == "complete"
        check(rig)
        await rig.stop()

    run(scenario())


def test_no_sample_is_given_up_because_the_broker_was_away(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path, deadlines={"stepSeconds": 20.0, "scoreSeconds": 5.0})
        await rig.start()
        while not any(isinstance(r, Accepted) for r in rig.records()):
            await rig.clock.sleep(0.2)
        rig.bus.connected = False
        await rig.clock.sleep(40.0)
        rig.bus.connected = True
        assert (await rig.outcome())["outcome"] == "complete"
        assert summarise(reports(rig)).samples_abandoned == 0
        check(rig)
        await rig.stop()

    run(scenario())


def test_a_second_planner_ends_the_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        await rig.start()
        await rig.clock.sleep(3.0)
        first = rig.roles.pop("planner-1")
        rig.start_planner()
        progress = await rig.outcome()
        assert isinstance(first.died, Fenced)
        assert progress["outcome"] == "complete"
        check(rig)
        await rig.stop()

    run(scenario())


async def say_started(rig: Rig, name: str, role: str) -> None:
    """What the operator and the runner write of a pod that they start now."""
    own = {labels.JOB_UID: UID, labels.ROLE: role, labels.ATTEMPT: "1", labels.INDEX: "0"}
    await rig.cluster.create(Resource("v1", "Pod", Meta(name=name, labels=own)))
    started = {"startedAt": rfc3339(rig.clock.wall())}
    await rig.cluster.patch_status("Pod", "default", name, started)


def test_the_time_in_which_pods_start_up_has_its_cause(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        await rig.start()
        await say_started(rig, "planner-1", "planner")
        await say_started(rig, "job-learner-1-0", "learner")
        await say_started(rig, "scorer", "reward")
        await rig.outcome()
        await rig.of("planner").task
        entries = reports(rig)[0].cost.entries
        startup = {e.role: e.seconds for e in entries if e.cause == "startup"}
        assert set(startup) == {"planner", "learner", "reward"}
        assert all(0.0 < seconds <= 1.0 for seconds in startup.values())
        await rig.stop()

    run(scenario())


def test_a_planner_that_must_go_saves_first(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path, checkpoint={"everySteps": 100, "retain": 2})
        await rig.start()
        while not any(isinstance(r, Committed) for r in rig.records()):
            await rig.clock.sleep(0.2)
        rig.of("planner").terminate()
        await rig.of("planner").task
        assert any(isinstance(r, Checkpointed) for r in rig.records())
        assert (await rig.progress())["outcome"] == ""
        rig.start_planner()
        assert (await rig.outcome())["outcome"] == "complete"
        check(rig)
        await rig.stop()

    run(scenario())


def test_a_report_explains_the_step_by_phase_actor_and_cost(tmp_path: Path) -> None:
    async def scenario() -> None:
        rig = Rig(tmp_path)
        await rig.start()
        await rig.outcome()
        await rig.of("planner").task
        report = reports(rig)[1]
        phases = report.phases
        total = phases.plan + phases.sync + phases.decode + phases.score + phases.learn
        assert total == pytest.approx(report.seconds, abs=1e-6)
        assert phases.decode > 0
        assert {actor.name for actor in report.actors} == {"decode-4", "decode-5"}
        assert sum(actor.samples for actor in report.actors) == report.samples.accepted
        assert {e.role for e in report.cost.entries} == {"planner", "learner", "decode", "reward"}
        assert msgspec.json.decode(report.model_dump_json(by_alias=True))["nextPolicy"] == 2
        await rig.stop()

    run(scenario())
