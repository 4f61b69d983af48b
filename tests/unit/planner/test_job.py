"""Whole jobs in the model world: first without faults, then with stated ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import pytest
from msgspec import structs

from ebbtide.wire import (
    Abandoned,
    Accepted,
    Adopted,
    Checkpointed,
    Committed,
    Decided,
    Dispatched,
    LearnerBeat,
    Record,
    Spent,
    StepOpened,
)
from services.planner.core.config import Deadlines, Economy, Sft
from services.planner.core.events import Heard, PodStarted, Suspend, Tick
from services.planner.core.samples import OUT
from tests.checker.verdict import examine
from tests.unit.planner.builders import GRPO, NO_EVAL, a_config, some_data
from tests.unit.planner.world import World


def check(world: World) -> None:
    """Nothing is lost, nothing doubled, and every step is committed once, in order."""
    verdict = examine(world.evidence())
    assert verdict.faults() == {}
    assert_decided_before_anybody_acts(world.records)
    committed = [r.step for r in world.records if isinstance(r, Committed)]
    assert world.replayed().next_step == world.config.last_step + 1
    if world.attempt == 1:
        assert committed == list(range(world.config.last_step + 1))


def assert_decided_before_anybody_acts(records: Sequence[Record]) -> None:
    """Once for each opening of a step, whoever opened it, and before the first hand-out."""
    decided = True
    for record in records:
        match record:
            case StepOpened(plan):
                decided = not plan.groups
            case Decided():
                assert not decided, "a step is laid out once"
                decided = True
            case Dispatched():
                assert decided, "nothing is handed out before it is laid out"


@pytest.mark.parametrize("actors", [1, 2, 3])
def test_a_job_without_faults_completes(actors: int) -> None:
    world = World(a_config(), some_data(), actors=actors)
    world.calm()
    assert world.outcome
    assert (world.outcome.outcome, world.outcome.reason) == ("complete", "Complete")
    check(world)
    dispatched = [r for r in world.records if isinstance(r, Dispatched)]
    planned = sum(g.size for r in world.records if isinstance(r, StepOpened) for g in r.plan.groups)
    assert len(dispatched) == planned == 2 * 4 + 2 + 2


def test_a_supervised_job_needs_no_actor() -> None:
    world = World(a_config(work=Sft(batch=4, updates=3)), some_data(), actors=0)
    world.calm()
    assert world.outcome
    assert world.outcome.outcome == "complete"
    assert len(world.learner.updates) == 2


def test_only_the_last_samples_of_a_step_hurry() -> None:
    world = World(a_config(), some_data())
    world.calm()
    assert world.seat.planner.hurried
    world = World(a_config(work=structs.replace(GRPO, prompts=32)), some_data(64))
    decoding(world)
    assert not world.seat.planner.hurried


def decoding(world: World) -> None:
    """Both actors have journalled a token of something."""
    for _ in range(50):
        world.one_round()
        if sum(bool(actor.running) for actor in world.actors.values()) > 1:
            world.one_round()
            return
    raise AssertionError("nothing is decoded")


def test_what_a_draining_actor_had_goes_on_elsewhere_without_loss_of_tokens() -> None:
    world = World(a_config(), some_data())
    decoding(world)
    leaving = next(actor for actor in world.actors.values() if actor.running)
    leaving.drain()
    world.calm()
    check(world)
    counts = [report.samples for report in world.reports.values()]
    assert sum(c.resumed for c in counts) > 0
    assert sum(c.restarted for c in counts) == 0
    assert not leaving.outbox


def test_what_a_dead_actor_had_goes_on_from_its_journal() -> None:
    world = World(a_config(), some_data())
    decoding(world)
    victim = next(name for name, actor in world.actors.items() if actor.running)
    world.kill_actor(victim)
    world.calm()
    check(world)
    assert sum(report.samples.resumed for report in world.reports.values()) > 0


def test_a_planner_that_starts_anew_adopts_what_still_runs() -> None:
    world = World(a_config(), some_data())
    decoding(world)
    world.kill_planner()
    world.calm()
    check(world)
    planned = 2 * 4 + 2 + 2
    assert sum(isinstance(r, Dispatched) for r in world.records) == planned


def test_a_new_attempt_uses_what_the_old_one_accepted() -> None:
    world = World(a_config(), some_data())
    while not any(isinstance(r, Accepted) for r in world.records):
        world.one_round()
    world.kill_learner()
    world.calm()
    check(world)
    assert sum(isinstance(r, Adopted) for r in world.records) > 0


def test_without_an_open_step_only_what_the_ledger_has_is_settled_as_accepted() -> None:
    world = World(a_config(), some_data())
    while not any(isinstance(r, Accepted) for r in world.records):
        world.one_round()
    accepted = {r.dispatch for r in world.records if isinstance(r, Accepted)}
    world.letters.clear()  # nobody has been told
    old = {d for actor in world.actors.values() for d in [*actor.outbox, *actor.running]}
    assert accepted & old
    assert old - accepted
    world.kill_learner()
    for _ in range(5):
        settle_up(world)
    told = {line.dispatch: line.verdict for a in world.actors.values() for line in a.settled}
    expected = {d: "accepted" if d in accepted else "void" for d in old}
    assert told == {(d.attempt, d.planner_epoch, d.seq): said for d, said in expected.items()}
    world.calm()
    check(world)


def settle_up(world: World) -> None:
    """The planner hears actors and facts; the learner is still restoring."""
    for actor in world.actors.values():
        actor.beat()
    world.fetch()
    world.tick(0.5)
    world.perform(world.seat)
    letters, world.letters = world.letters, []
    for letter in letters:
        letter.deliver()


def test_a_new_attempt_goes_on_from_the_newest_checkpoint() -> None:
    world = World(a_config(steps=3), some_data())
    while sum(isinstance(r, Checkpointed) for r in world.records) < 2:
        world.one_round()
    world.kill_learner()
    world.calm()
    check(world)
    opened = [r.plan.step for r in world.records if isinstance(r, StepOpened)]
    assert opened.count(0) == 1
    assert world.learner.updates[0].step == 2


def test_a_learner_that_is_still_restoring_is_waited_for() -> None:
    world = World(a_config(steps=3), some_data())
    while sum(isinstance(r, Checkpointed) for r in world.records) < 2:
        world.one_round()
    world.kill_learner()
    world.feed(world.seat, Heard(LearnerBeat(world.attempt, None, None, "starting", 0)))
    opened = sum(isinstance(r, StepOpened) for r in world.records)
    world.feed(world.seat, Tick())
    assert sum(isinstance(r, StepOpened) for r in world.records) == opened
    world.calm()
    check(world)


def with_reference(reference: str) -> World:
    """One checkpoint is committed by a learner that holds its policy near `reference`."""
    world = World(a_config(steps=3), some_data())
    world.learner.reference = world.reference = reference
    while not any(isinstance(r, Checkpointed) for r in world.records):
        world.one_round()
    return world


def test_the_reference_is_recorded_with_every_step() -> None:
    world = with_reference("weights")
    world.kill_learner()
    world.calm()
    check(world)
    plans = [r.plan for r in world.records if isinstance(r, StepOpened)]
    assert {dict(plan.digests)["reference"] for plan in plans} == {"weights"}


def test_another_reference_at_a_later_attempt_fails_the_job_and_names_the_field() -> None:
    world = with_reference("weights")
    world.reference = "other weights"
    world.kill_learner()
    world.calm()
    assert world.outcome
    assert (world.outcome.outcome, world.outcome.reason) == ("failed", "ModelChanged")
    assert world.outcome.message.startswith("model.uri: ")


def test_another_initial_policy_at_a_later_attempt_fails_the_job_and_names_the_field() -> None:
    world = World(a_config(), some_data())
    while not any(isinstance(r, Accepted) for r in world.records):
        world.one_round()
    world.model = "another"
    world.kill_learner()
    world.calm()
    assert world.outcome
    assert (world.outcome.outcome, world.outcome.reason) == ("failed", "ModelChanged")


def startup_of(world: World) -> dict[str, float]:
    """Start-up seconds by role, in the ledger."""
    cost = {(r.role, r.cause): r.seconds for r in world.records if isinstance(r, Spent)}
    return {role: seconds for (role, cause), seconds in cost.items() if cause == "startup"}


def tell_started(world: World, since: float) -> None:
    for role, pod in (("planner", "planner"), ("learner", "0")):
        world.feed(world.seat, PodStarted(role, pod, since))


def test_start_up_is_accounted_for_until_a_pod_is_first_heard() -> None:
    prices = Economy("USD", {"planner": 1.0, "learner": 1.0}, "value-of-time", 0.0)
    world = World(a_config(economy=prices), some_data())
    tell_started(world, since=-30.0)
    assert world.seat.planner.cost_status().accrued == pytest.approx(2 * 30.0 / 3600)
    world.calm()
    assert startup_of(world) == {"planner": 30.5, "learner": 30.5}


def test_a_learner_that_an_earlier_planner_heard_does_not_start_up_again() -> None:
    world = World(a_config(), some_data())
    world.kill_planner()
    tell_started(world, since=-30.0)
    world.calm()
    assert set(startup_of(world)) == {"planner"}


def test_a_step_without_a_single_reward_fails_the_job_and_says_why() -> None:
    world = World(a_config(), some_data())
    world.scorer.invalid = 1000
    world.calm()
    assert world.outcome
    assert (world.outcome.outcome, world.outcome.reason) == ("failed", "NothingValued")
    assert "raised" in world.outcome.message


def test_a_step_ends_at_its_deadline_and_counts_what_is_missing() -> None:
    config = a_config(deadlines=Deadlines(step=30.0, score=20.0, learn=500.0))
    world = World(config, some_data(), actors=1)
    slow = world.actors.popitem()[1]
    while not any(isinstance(r, Accepted) for r in world.records):
        world.actors[slow.name] = slow
        world.one_round()
        world.actors.clear()
    world.tick(31.0)
    world.calm()
    assert sum(isinstance(r, Abandoned) for r in world.records) > 0
    assert examine(world.evidence(), complete=False).faults() == {}


SHORT = Deadlines(step=30.0, score=20.0, learn=100.0)


def abandoned(world: World) -> int:
    return sum(isinstance(r, Abandoned) for r in world.records)


def stuck_in_decode() -> World:
    """A step is open, and its only actor does nothing."""
    world = World(a_config(deadlines=SHORT), some_data(), actors=1)
    while not any(isinstance(r, Dispatched) for r in world.records):
        world.one_round()
    return world


def stuck_in_scoring() -> World:
    """Samples are accepted, and the scorers do nothing."""
    world = World(a_config(deadlines=SHORT), some_data(), actors=1)
    while not any(isinstance(r, Accepted) for r in world.records):
        world.one_round()
    world.scoring.clear()
    return world


def idle(world: World, seconds: int, *, connected: bool = True) -> None:
    """Time passes; of all parties the planner hears the learner alone."""
    for _ in range(seconds):
        world.letters.clear()
        world.learner.beat()
        for letter in world.letters if connected else []:
            letter.deliver()
        world.tick(1.0, connected=connected)
        world.perform(world.seat)


def test_a_step_has_its_deadline_however_often_the_planner_starts_anew() -> None:
    world = stuck_in_decode()
    for _ in range(4):
        idle(world, 12)
        world.kill_planner()
    assert abandoned(world) > 0


def test_a_planner_that_takes_over_a_late_step_hears_first_what_has_come() -> None:
    world = stuck_in_decode()
    idle(world, 29)
    world.kill_planner()
    idle(world, 9)
    assert abandoned(world) == 0
    idle(world, 3)
    assert abandoned(world) > 0


def test_a_score_has_its_deadline_however_often_the_planner_starts_anew() -> None:
    world = stuck_in_scoring()
    accepted = {r.key for r in world.records if isinstance(r, Accepted)}
    for _ in range(8):
        idle(world, 12)
        world.kill_planner()
    assert accepted <= {r.key for r in world.records if isinstance(r, Abandoned)}


@pytest.mark.parametrize("stuck", [stuck_in_decode, stuck_in_scoring])
def test_no_deadline_runs_out_while_the_broker_is_away(stuck: Callable[[], World]) -> None:
    world = stuck()
    idle(world, 1000, connected=False)
    assert abandoned(world) == 0
    world.calm()
    assert world.outcome
    assert world.outcome.outcome == "complete"


def test_a_learner_is_not_late_while_the_broker_is_away() -> None:
    world = World(a_config(deadlines=SHORT), some_data())
    for _ in range(100):
        if world.seat.planner.standing().phase == "learn":
            break
        world.one_round()
    idle(world, 1000, connected=False)
    world.calm()
    assert world.outcome
    assert world.outcome.outcome == "complete"


def test_a_suspended_job_saves_and_begins_nothing_new() -> None:
    world = World(a_config(steps=4, checkpoint_every=4, work=NO_EVAL), some_data())
    while not any(isinstance(r, Committed) for r in world.records):
        world.one_round()
    world.feed(world.seat, Suspend())
    for _ in range(20):
        world.one_round()
    assert world.seat.planner.suspended
    assert world.replayed().has_checkpoint(1)
    assert world.replayed().next_step == 1


def test_a_sample_that_is_cut_goes_on_with_its_tokens() -> None:
    world = World(a_config(), some_data())
    decoding(world)
    planner, step = world.seat.planner, world.seat.planner._pen.book.open
    assert step
    for sample in step.where(OUT):
        planner._handouts.cut(step.actors[sample], [h for h in [step.hands[sample]] if h])
    world.feed(world.seat, Tick())
    world.calm()
    check(world)
    counts = [report.samples for report in world.reports.values()]
    assert sum(c.resumed for c in counts) > 0
    assert sum(c.restarted for c in counts) == 0


def test_what_is_odd_with_the_data_stands_in_the_status() -> None:
    data = some_data()
    odd = msgspec.structs.replace(data.train, unknown=2)
    world = World(a_config(), msgspec.structs.replace(data, train=odd))
    assert world.seat.planner.standing().warning.startswith(f"2 of {odd.n_rows} prompts hold")
