"""Loss, repetition, reordering, deaths and zombies in any order: every sample ends once.

The planner's law (protocol.md 3, 9), judged by the independent checker. When the faults stop,
the job ends; it may fail only where no sample of a step could get a reward.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from msgspec import structs

from services.planner.core.config import Deadlines, Given, Sft
from tests.checker.lineage import replay
from tests.checker.verdict import examine
from tests.unit.planner.builders import (
    GRPO,
    a_config,
    a_policy,
    a_ref,
    flat_worth,
    short_turns,
    short_words,
    some_data,
    usual_worth,
)
from tests.unit.planner.world import World

some = st.integers(0, 10**6)
_LETTERS = 80


class FaultyWorld(RuleBasedStateMachine):
    """Every rule is something that can happen; the end is always fair."""

    @initialize(
        actors=st.integers(0, 3),
        step_seconds=st.sampled_from([1000.0, 40.0]),
        kind=st.sampled_from(["learns", "learns", "samples", "supervised"]),
        refills=st.sampled_from([0, 0, 2]),
        turns=st.sampled_from([1, 1, 3]),
    )
    def begin(self, actors: int, step_seconds: float, kind: str, refills: int, turns: int) -> None:
        deadlines = Deadlines(step=step_seconds, score=20.0, learn=2000.0)
        grpo = structs.replace(GRPO, refills=refills, drop_zero=refills > 0, turns=turns)
        grpo = structs.replace(grpo, max_new_tokens=14) if turns > 1 else grpo
        work = Sft(batch=2, updates=2) if kind == "supervised" else grpo
        given = Given(a_policy(0, attempt=0), a_ref("base")) if kind == "samples" else None
        config = a_config(work=work, deadlines=deadlines, given=given)
        self.world = World(config, some_data(), actors=actors)
        self.world.worth = flat_worth(0, 4) if refills else usual_worth
        if turns > 1:
            self.world.says, self.world.answer = short_words, short_turns
        self.hurt = False

    # --- things go well -------------------------------------------------------------------------

    @rule(rounds=st.integers(1, 12))
    def all_goes_well(self, rounds: int) -> None:
        for _ in range(rounds):
            self.world.one_round()

    @rule(count=st.integers(1, 12))
    def effects_take_place(self, count: int) -> None:
        self.world.perform(self.world.seat, count)

    @rule(which=some)
    def a_letter_arrives(self, which: int) -> None:
        letters = self.world.letters
        if letters:
            letters.pop(which % len(letters)).deliver()

    @rule(which=some, journals=st.booleans())
    def an_actor_works(self, which: int, journals: bool) -> None:
        if self.world.actors:
            self.actor(which).work(journals=journals)

    @rule(count=st.integers(1, 4))
    def a_scorer_works(self, count: int) -> None:
        self.world.scorer.work(count)

    @rule()
    def the_learner_works(self) -> None:
        self.world.learner.work()

    @rule(count=st.integers(1, 6))
    def facts_are_fetched(self, count: int) -> None:
        self.world.fetch(count)

    @rule(seconds=st.sampled_from([0.1, 1.0, 6.0, 25.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.tick(seconds)

    @rule(seconds=st.sampled_from([1.0, 25.0, 400.0]))
    def time_passes_without_a_broker(self, seconds: float) -> None:
        self.world.tick(seconds, connected=False)

    # --- the network misbehaves -------------------------------------------------------------------

    @rule(which=some)
    def a_letter_is_lost(self, which: int) -> None:
        letters = self.world.letters
        if letters:
            letters.pop(which % len(letters))

    @rule(which=some)
    def a_letter_arrives_and_will_again(self, which: int) -> None:
        letters = self.world.letters
        if letters:
            letters[which % len(letters)].deliver()

    @rule()
    def the_broker_is_emptied(self) -> None:
        self.world.stream.clear()
        self.world.scoring.clear()

    @rule()
    def the_hot_store_is_flushed(self) -> None:
        self.world.journals.clear()

    # --- processes die ----------------------------------------------------------------------------

    @precondition(lambda self: self.world.actors)
    @rule(which=some, known=st.booleans(), restarted=st.booleans())
    def an_actor_dies(self, which: int, known: bool, restarted: bool) -> None:
        name = self.actor(which).name
        self.world.kill_actor(name)
        if known:
            self.world.tell_gone(name)
        if restarted:
            self.world.start_actor(name)

    @precondition(lambda self: self.world.actors)
    @rule(which=some)
    def an_actor_drains(self, which: int) -> None:
        self.actor(which).drain()

    @precondition(lambda self: len(self.world.actors) < 4)
    @rule()
    def an_actor_joins(self) -> None:
        self.world.start_actor()

    @rule(zombie=st.booleans(), lost=st.integers(0, 30))
    def the_planner_dies(self, zombie: bool, lost: int) -> None:
        self.world.perform(self.world.seat, lost)
        self.world.kill_planner(zombie=zombie)

    @precondition(lambda self: self.world.zombies)
    @rule(which=some, count=st.integers(1, 10))
    def a_zombie_acts(self, which: int, count: int) -> None:
        zombies = self.world.zombies
        self.world.perform(zombies[which % len(zombies)], count)

    @rule()
    def the_learner_dies(self) -> None:
        self.world.kill_learner()

    @rule(errors=st.integers(0, 3), invalid=st.integers(0, 2))
    def scoring_fails(self, errors: int, invalid: int) -> None:
        self.world.scorer.errors += errors
        self.world.scorer.invalid += invalid
        self.hurt = True

    # --- what always holds ------------------------------------------------------------------------

    @invariant()
    def nothing_is_counted_twice(self) -> None:
        if hasattr(self, "world"):
            del self.world.letters[:-_LETTERS]
            faults = examine(self.world.evidence(), complete=False).faults()
            assert faults == {}, faults

    def teardown(self) -> None:
        if not hasattr(self, "world"):
            return
        self.world.calm()
        assert self.world.outcome
        complete = self.world.outcome.outcome == "complete"
        may_fail = self.hurt or self.world.config.deadlines.step < 100
        assert complete or (may_fail and self.world.outcome.reason == "NothingValued")
        assert examine(self.world.evidence(), complete=complete).faults() == {}
        if complete:
            self.every_step_is_committed_once()

    def every_step_is_committed_once(self) -> None:
        evidence = self.world.evidence()
        lineage = replay(evidence.records, evidence.manifest)
        assert sorted(lineage.committed) == list(range(self.world.config.last_step + 1))
        learned = [token.step for token in self.world.learner.updates]
        assert learned == sorted(set(learned)), "no update was made twice"

    def actor(self, which: int):  # noqa: ANN201
        names = sorted(self.world.actors)
        return self.world.actors[names[which % len(names)]]


FaultyWorld.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestNoSampleIsLost = FaultyWorld.TestCase


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_sample_is_lost_in_many_more_worlds() -> None:
    long = settings(FaultyWorld.TestCase.settings, max_examples=1000, stateful_step_count=100)
    run_state_machine_as_test(FaultyWorld, settings=long)
