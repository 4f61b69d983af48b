"""Laws that hold for any order of users, faults and crashes of the operator itself."""

from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ebbtide import labels
from ebbtide.objects import Key
from ebbtide.testing.jobs import a_job
from ebbtide_operator.core.pods import ROLES
from ebbtide_operator.core.site import Site
from tests.unit.operator.worlds import JOB, POOL, World

ENDS = st.sampled_from([(0, None), (1, None), (2, None), (5, None), (None, 9), (None, None)])


class Operating(RuleBasedStateMachine):
    """Users, pods, the kubelet and a mortal operator, in any order."""

    @initialize(
        on_suspend=st.booleans(), backoff=st.integers(0, 3), ttl=st.sampled_from([None, 0.0, 50.0])
    )
    def start(self, on_suspend: bool, backoff: int, ttl: float | None) -> None:
        changes: dict[str, Any] = {"backoffLimit": backoff, "ttlSecondsAfterFinished": ttl}
        job = a_job(checkpoint={"onSuspend": on_suspend}, **changes)
        self.world = World(job, site=Site(restart_limit=5))
        self.ended, self.attempt = "", 0
        self.made_at_end = 0

    # --- what may happen ---

    @rule()
    def look(self) -> None:
        self.world.apply(self.world.plan())

    @rule()
    def perform_twice(self) -> None:
        plan = self.world.plan()
        self.world.apply(plan)
        after = self.world.table.latest
        self.world.apply(plan)
        assert self.world.table.latest == after

    @rule(writes=st.integers(0, 6))
    def look_and_die(self, writes: int) -> None:
        self.world.apply(self.world.plan(), writes=writes)

    @rule()
    def run_pods(self) -> None:
        self.world.run_pods()

    @rule(seconds=st.sampled_from([0.1, 1.0, 30.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.world.now += seconds

    @rule(role=st.sampled_from(ROLES), end=ENDS, pick=st.integers(0, 9))
    def fail(self, role: str, end: tuple[int | None, int | None], pick: int) -> None:
        alive = [p.name for p in self.world.pods(role) if not p.finished and p.status.started_at]
        if alive:
            self.world.finish(alive[pick % len(alive)], code=end[0], signal=end[1])

    @rule(role=st.sampled_from(ROLES), pick=st.integers(0, 9))
    def evict(self, role: str, pick: int) -> None:
        if alive := self.world.alive(role):
            self.world.delete(Key("Pod", "default", alive[pick % len(alive)]))

    @precondition(lambda self: self.world.job is not None)
    @rule(suspend=st.booleans())
    def suspend(self, suspend: bool) -> None:
        self.world.patch(JOB, {"spec": {"suspend": suspend}})

    @precondition(lambda self: self.world.table.load(POOL) is not None)
    @rule(replicas=st.integers(0, 4), release=st.lists(st.integers(0, 5), max_size=2))
    def scale(self, replicas: int, release: list[int]) -> None:
        names = [f"job-decode-{n}" for n in release]
        self.world.patch(POOL, {"spec": {"replicas": replicas, "release": names}})

    @precondition(lambda self: self.world.job is not None)
    @rule(word=st.sampled_from(["a", "b"]))
    def restart(self, word: str) -> None:
        self.world.patch(JOB, {"spec": {"restart": {"id": word}}})

    @rule(role=st.sampled_from(ROLES), pick=st.integers(0, 9))
    def interrupt(self, role: str, pick: int) -> None:
        if alive := self.world.alive(role):
            self.world.say(alive[pick % len(alive)], disrupted="PreemptionByScheduler")

    @precondition(lambda self: self.world.job is not None)
    @rule(step=st.integers(0, 9))
    def progress(self, step: int) -> None:
        self.world.progress(step=step)

    @precondition(lambda self: self.world.job is not None)
    @rule(outcome=st.sampled_from(["complete", "failed"]))
    def give_outcome(self, outcome: str) -> None:
        self.world.progress(outcome=outcome)

    @precondition(lambda self: self.world.job is not None)
    @rule()
    def cancel(self) -> None:
        self.world.patch(JOB, {"metadata": {"annotations": {labels.CANCEL: "true"}}})

    @precondition(lambda self: self.world.job is not None)
    @rule()
    def delete(self) -> None:
        self.world.delete(JOB)

    # --- what must hold ---

    @invariant()
    def no_pod_is_made_after_the_end(self) -> None:
        if self.ended:
            assert len(self.world.made) == self.made_at_end
        elif self.world.job is None or self.world.own.ended:
            self.ended = "gone" if self.world.job is None else self.world.own.stopped_for
            self.made_at_end = len(self.world.made)

    @invariant()
    def an_end_is_for_good(self) -> None:
        if self.ended not in ("", "gone") and self.world.job is not None:
            assert self.world.own.stopped_for == self.ended

    @invariant()
    def no_name_is_used_twice(self) -> None:
        assert len(set(self.world.made)) == len(self.world.made)

    @invariant()
    def one_gang_and_one_planner_at_most(self) -> None:
        attempts = {p.label(labels.ATTEMPT) for p in self.world.pods("learner") if p.alive}
        assert len(attempts) <= 1
        assert len(self.world.alive("planner")) <= 1

    @invariant()
    def the_attempt_never_falls(self) -> None:
        if self.world.job is not None:
            assert self.world.own.attempt >= self.attempt
            self.attempt = self.world.own.attempt

    @invariant()
    def every_pod_has_an_owner(self) -> None:
        if self.world.job is None:
            assert all(pod.leaving for pod in self.world.pods())

    def teardown(self) -> None:
        """Left alone, the world comes to rest as it should be, and a second look does nothing."""
        if not hasattr(self, "world"):
            return
        world = self.world
        world.rest(limit=100, seconds=20.0)
        world.now += 60.0  # a job that has ended may still expire
        world.rest(limit=100, seconds=20.0)
        assert world.plan().idle
        if world.job is None:
            assert world.table.objects == {}
        elif world.own.ended or world.own.holds("Suspended"):
            assert world.pods() == []
        else:
            assert len(world.alive("learner")) == 2
            assert len(world.alive("planner")) == 1
            asked = world.job.spec.get("restart", {}).get("id", "")
            assert world.own.restart_id == asked
            pool = world.table.load(POOL)
            assert pool is not None
            assert len(world.alive("decode")) == pool.spec["replicas"]
        unwritten = [p for p, ended in world.held.items() if ended is None]
        assert sorted(unwritten) == sorted(p.name for p in world.pods() if p.status.started_at)


class Longer(Operating):
    """The same, for many more orders."""


def _examples(number: int) -> settings:
    return settings(
        max_examples=number,
        stateful_step_count=30,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


Operating.TestCase.settings = _examples(15)
Longer.TestCase.settings = _examples(500)
TestOperating = Operating.TestCase
TestLonger = pytest.mark.slow(Longer.TestCase)
