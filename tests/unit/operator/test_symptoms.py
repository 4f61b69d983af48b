"""What other platforms' users complained of does not happen here.

Each test is named after the symptom and bears the number of its row in the survey of such
complaints. Each is played a second time on code that has the fault, and must then fail.
"""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from ebbtide import labels
from ebbtide.objects import Key
from ebbtide.ports import Resource
from ebbtide.testing.jobs import a_job
from ebbtide_operator.core import conditions, endings, fleets, plan, render
from ebbtide_operator.core import reconcile as deciding
from ebbtide_operator.core.look import Look
from ebbtide_operator.core.plan import Patch, Plan
from ebbtide_operator.core.reasons import Reason
from ebbtide_operator.core.render import Renderer
from ebbtide_operator.core.site import KubeSite, NodePool, Site
from ebbtide_operator.core.status import Own
from ebbtide_operator.podspec import PodView
from tests.unit.operator.worlds import JOB, POOL, World, running

Breaks = Callable[[pytest.MonkeyPatch], None]
Scene = Callable[[], None]
ROWS: dict[int, tuple[Scene, Breaks]] = {}
OF_THE_OPERATOR = {*range(1, 10), *range(11, 17), *range(18, 25)}
ELSEWHERE = {23}
"""Rows with a test of the operator's shell."""


def symptom(row: int, where: Any, name: str, fault: Any) -> Callable[[Scene], Scene]:
    """The scene fails where `name` of `where` is `fault`."""

    def keep(scene: Scene) -> Scene:
        ROWS[row] = (scene, lambda patch: patch.setattr(where, name, fault))
        return scene

    return keep


def scale(world: World, replicas: int, *release: str) -> None:
    world.patch(POOL, {"spec": {"replicas": replicas, "release": list(release)}})


def actors(number: int, **changes: Any) -> World:
    return running(a_job(decode={"replicas": number, **changes.pop("decode", {})}, **changes))


def pool_of(world: World) -> Resource:
    found = world.table.load(POOL)
    assert found is not None
    return found


def start_all(world: World, *, but: str) -> None:
    """The kubelet starts every pod except one."""
    world.settle()
    for pod in world.pods():
        if pod.name != but:
            world.start(pod.name)
    world.settle()
    world.progress(step=1)
    world.settle()


# --- scaling --------------------------------------------------------------------------------------


@symptom(1, fleets, "end", lambda pod, _=None: plan.end(pod, 5.0))
def test_a_scale_down_aborts_nothing_that_is_in_flight() -> None:
    world = actors(2, decode={"drainSeconds": 77.0})
    scale(world, 1, "job-decode-1")
    world.settle()
    assert [(p.name, p.grace) for p in world.pods() if p.leaving] == [("job-decode-1", 77.0)]


def _everybody_is_placed(look: Look, own: Own) -> bool:
    return bool(look.pods) and all(pod.status.phase != "Pending" for pod in look.pods)


@symptom(2, endings, "_placed", _everybody_is_placed)
def test_an_actor_that_stays_pending_blocks_no_later_decision() -> None:
    world = World(a_job(deadlines={"schedulingSeconds": 60.0}))
    start_all(world, but="job-decode-1")
    world.now += 1000.0
    scale(world, 3)
    world.settle()
    assert world.alive("decode") == ["job-decode-0", "job-decode-1", "job-decode-2"]
    assert (world.own.ended, world.own.holds("Running")) == (False, True)


@symptom(3, conditions, "_WRITERS", frozenset({"ebbtide-operator", "argocd"}))
def test_an_edit_by_a_stranger_is_reported_and_not_fought() -> None:
    world = actors(2)
    pool = pool_of(world)
    meta = msgspec.structs.replace(pool.metadata, managers={"spec.replicas": "argocd"})
    edited = {**pool.spec, "replicas": 3}
    world.table.objects[POOL] = msgspec.structs.replace(pool, metadata=meta, spec=edited)
    world.settle()
    assert (world.reason("Degraded"), pool_of(world).spec["replicas"]) == ("ForeignEdit", 3)


@symptom(4, render, "_resources", lambda asked, _: {"resources": {"limits": asked}})
def test_a_device_that_is_claimed_is_not_counted_as_a_resource() -> None:
    claimed = NodePool(claims={"gpu": "h200"})
    site = KubeSite(image="i", pools={"default": claimed})
    spec = Renderer(site)(next(iter(actors(1).pods("decode"))).resource)
    assert spec["resourceClaims"] == [{"name": "gpu", "resourceClaimTemplateName": "h200"}]
    assert spec["containers"][0]["resources"] == {"claims": [{"name": "gpu"}]}


_WANTED = Look.wanted


def _all_or_nothing(look: Look, role: str) -> int:
    return _WANTED(look, role) if look._pool_replicas() else 0


@symptom(5, Look, "wanted", _all_or_nothing)
def test_a_pool_at_zero_takes_nobody_else_with_it() -> None:
    world = actors(2)
    others = [name for name in world.alive() if "decode" not in name]
    scale(world, 0)
    world.rest()
    assert world.alive() == others


@symptom(6, Look, "_pool_replicas", lambda look: look.cast.spec.decode.replicas)
def test_what_an_autoscaler_wrote_is_not_reverted() -> None:
    world = actors(2)
    scale(world, 4)
    world.rest()
    assert (len(world.alive("decode")), pool_of(world).spec["replicas"]) == (4, 4)


_ASSEMBLE = deciding._assemble


def _replaces_in_full(*given: Any) -> Plan:
    body = {"spec": {"replicas": given[1].cast.spec.decode.replicas}}
    made, pool = _ASSEMBLE(*given), given[1].pool
    if pool is None or pool.spec == body["spec"]:
        return made
    return msgspec.structs.replace(made, patches=(*made.patches, Patch(pool, body)))


@symptom(7, deciding, "_assemble", _replaces_in_full)
def test_an_update_that_omits_the_replicas_does_not_default_them() -> None:
    world = actors(2)
    scale(world, 5)
    world.patch(JOB, {"spec": {"decode": {"replicas": None}, "seed": 7}})
    world.rest()
    assert pool_of(world).spec["replicas"] == 5


@symptom(8, fleets, "_cost", lambda _: 0)
def test_a_scale_down_that_names_nobody_spares_the_busy() -> None:
    world = actors(3)
    for number, cost in enumerate(("500", "-3", "900")):
        meta = {"metadata": {"annotations": {fleets.DELETION_COST: cost}}}
        world.patch(Key("Pod", "default", f"job-decode-{number}"), meta)
    scale(world, 2)
    world.rest()
    assert world.alive("decode") == ["job-decode-0", "job-decode-2"]


def _counts_no_leaver(look: Look, pool: Any, *, wanted: int) -> Any:
    counted = _COUNT(look, pool, wanted=wanted)
    return msgspec.structs.replace(counted, draining_replicas=0)


_COUNT = fleets.count_pool


@symptom(9, fleets, "count_pool", _counts_no_leaver)
def test_work_in_flight_still_counts_when_the_pool_is_scaled_to_zero() -> None:
    world = actors(2)
    scale(world, 0)
    world.settle()
    world.now += 20.0
    world.settle()
    assert pool_of(world).status["drainingReplicas"] == 2
    assert [pod.grace for pod in world.pods("decode")] == [30.0, 30.0]


def _as_many_as_allowed(look: Look) -> int:
    reported = look.cast.job.status.get("progress")
    return int(look.pool.spec["replicas"]) if look.pool and reported else 64


@symptom(11, Look, "_pool_replicas", _as_many_as_allowed)
def test_missing_figures_scale_nothing() -> None:
    world = actors(3)
    world.patch_status(JOB, {"progress": None, "cost": None, "policy": None})
    world.rest()
    assert len(world.alive("decode")) == 3


def _ready_first(kept: Any, wanted: int) -> list[PodView]:
    order = sorted(kept, key=lambda pod: not pod.status.ready)
    return order[: max(0, len(kept) - wanted)]


@symptom(12, fleets, "_excess", _ready_first)
def test_one_unready_actor_is_in_the_way_of_no_scale_down() -> None:
    world = actors(3)
    world.say("job-decode-0", ready=False)
    scale(world, 2)
    world.rest()
    assert world.alive("decode") == ["job-decode-1", "job-decode-2"]


@symptom(13, PodView, "alive", property(lambda pod: pod.status.ready and not pod.leaving))
def test_an_actor_that_loads_counts_and_is_not_scaled_away() -> None:
    world = actors(2)
    scale(world, 4)
    for _ in range(3):
        world.settle()
        world.now += 100.0
    assert len(world.pods("decode")) == 4
    assert pool_of(world).status["replicas"] == 4


_PLAN = fleets._plan


@symptom(15, fleets, "_plan", lambda pods, **more: _PLAN(pods, **{**more, "release": ()}))
def test_an_actor_goes_only_when_its_planner_says_that_it_is_idle() -> None:
    world = actors(3)
    scale(world, 2, "job-decode-0")
    world.say("job-decode-2", ready=False)
    world.rest()
    assert world.alive("decode") == ["job-decode-1", "job-decode-2"]


# --- status and stages ----------------------------------------------------------------------------


@symptom(14, endings, "_progressed", lambda *_: True)
def test_a_big_model_is_not_late_while_it_loads() -> None:
    world = World(a_job(deadlines={"preRunningSeconds": 5000.0, "stallSeconds": 60.0}))
    world.rest()
    world.now += 3000.0
    world.settle()
    assert not world.own.ended


def _runs(look: Look, own: Own) -> conditions.Fact:
    return conditions.Fact("Running", holds=True, reason=Reason.ROLES_READY)


@symptom(16, conditions, "_running", _runs)
def test_a_job_without_its_planner_does_not_say_that_it_runs() -> None:
    world = actors(1)
    world.kill("planner", signal=9)
    world.settle()
    running = world.own.condition("Running")
    assert running is not None
    assert (running.status, running.message) == ("False", "waiting for planner 0/1")


def _all_but_scorers(pod: PodView, grace: float | None = None) -> Any:
    return () if "reward" in pod.name else plan.end(pod, grace)


@symptom(18, deciding, "end", _all_but_scorers)
def test_a_suspended_job_holds_nothing() -> None:
    world = actors(2)
    world.patch(JOB, {"spec": {"suspend": True}})
    world.rest()
    assert (world.pods(), world.own.roles) == ([], ())
    assert pool_of(world).status["replicas"] == 0


@symptom(19, conditions, "_PENDING_SECONDS", 1e9)
def test_a_job_that_was_admitted_and_does_not_start_says_so() -> None:
    world = World(site=Site(usage_seconds=600.0))
    world.settle()
    world.say("job-learner-1-1", reason="Unschedulable", message="0/3 nodes have a GPU")
    after = world.plan().requeue_after
    world.now += 121.0
    world.settle()
    degraded = world.own.condition("Degraded")
    assert degraded is not None
    assert after == pytest.approx(120.0)
    assert (degraded.reason, "Unschedulable 0/3" in degraded.message) == ("PodsPending", True)
    assert "PodsPending" in {note.reason for note in world.events}


def _cancel(world: World) -> None:
    world.patch(JOB, {"metadata": {"annotations": {labels.CANCEL: "true"}}})


def _give_up(world: World) -> None:
    world.progress(outcome="failed")
    world.kill("planner", code=1)


def _refuse(world: World) -> None:
    for _ in range(2):
        world.kill("planner", code=2)
        world.rest()


def _wait(world: World) -> None:
    world.now += 9e4


PATHS: dict[str, tuple[Any, Callable[[World], Any]]] = {
    "Cancelled": ({}, _cancel),
    "TrainingFailed": ({}, _give_up),
    "RoleRefused": ({}, _refuse),
    "BackoffLimitExceeded": ({"backoffLimit": 0}, lambda world: world.kill("learner", code=1)),
    "StallDeadlineExceeded": ({}, _wait),
    "ActiveDeadlineExceeded": ({"deadlines": {"activeSeconds": 50.0}}, _wait),
}


@symptom(20, conditions, "ending", lambda _: [])
def test_no_failure_is_told_by_an_event_alone() -> None:
    for reason, (changes, fails) in PATHS.items():
        world = running(a_job(**changes))
        fails(world)
        world.rest()
        assert world.reason("Failed") == reason
        assert reason in {note.reason for note in world.events}


@symptom(21, Own, "ended", property(lambda _: False))
def test_a_finished_job_does_not_run_again_when_its_pods_are_collected() -> None:
    world = actors(2)
    world.progress(outcome="complete")
    world.kill("planner", code=0)
    world.rest()
    made = len(world.made)
    for pod in world.pods():
        world.delete(Key("Pod", "default", pod.name))
    world.delete(POOL)
    world.rest()
    assert (len(world.made), world.own.phase) == (made, "Complete")


@symptom(22, conditions, "phase_of", lambda own: own.conditions[-1].type)
def test_a_resumed_job_is_not_called_suspended() -> None:
    world = actors(1)
    for suspend, phase in ((True, "Suspended"), (False, "Running")):
        world.patch(JOB, {"spec": {"suspend": suspend}})
        world.rest()
        assert world.own.phase == phase


_FINISHED = PodView.finished.fget  # type: ignore[attr-defined]


@symptom(
    24, PodView, "finished", property(lambda p: _FINISHED(p) or "ImagePull" in p.status.reason)
)
def test_a_slow_image_is_no_failure() -> None:
    world = World()
    world.settle()
    for pod in world.pods():
        world.say(pod.name, reason="ImagePullBackOff", message="pulling")
    for _ in range(5):
        world.now += 300.0
        world.settle()
    assert (world.own.attempt, world.own.restarts, len(world.made)) == (1, 0, 7)


# --- every test can fail --------------------------------------------------------------------------


def test_every_row_of_the_operator_is_here() -> None:
    assert set(ROWS) | ELSEWHERE == OF_THE_OPERATOR


@pytest.mark.parametrize("row", ROWS)
def test_a_scene_fails_where_the_code_has_the_fault(
    row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene, breaks = ROWS[row]
    breaks(monkeypatch)
    with pytest.raises((AssertionError, KeyError)):
        scene()
