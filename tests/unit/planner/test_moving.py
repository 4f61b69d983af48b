"""Single moves, and each thing that can meet one on its way (protocol.md 3, 6)."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.reports import MigrationReport
from ebbtide.wire import Cut, Dispatched, KvKey, KvTicket, SampleKey
from services.planner.core.migrating import Scene
from services.planner.core.planning.migration import Move
from services.planner.core.steering import Steering, straight_profile
from services.planner.core.tickets import Tickets
from tests.checker.verdict import examine
from tests.unit.planner.builders import NO_EVAL, a_config, a_policy, some_data
from tests.unit.planner.parties import ModelActor
from tests.unit.planner.world import Letter, World

LONG = msgspec.structs.replace(NO_EVAL, prompts=8, group_size=4, max_new_tokens=60)
STEERING = Steering(
    migration="benefit", profile=straight_profile("model", first=0.5, more=0.0), measured=True
)


class Once:
    """Moves one sample, once it is `armed`: from the last actor that has any to the first."""

    def __init__(self, how: Literal["kv", "recompute"] = "kv", *, actors: int = 2) -> None:
        self.how, self.actors = how, actors
        self.move: Move | None = None
        self.armed = False

    def __call__(self, scene: Scene) -> list[Move]:
        busy = [actor for actor in scene.actors if actor.samples]
        if not self.armed or self.move is not None or len(busy) < self.actors:
            return []
        here, there = busy[-1], busy[0]
        self.move = Move(here.samples[-1], here.name, there.name, self.how, 0.0)
        return [self.move]


class Story:
    """A world in which one move was just ordered; its cut is still in flight."""

    key: SampleKey

    def __init__(self, how: Literal["kv", "recompute"] = "kv", *, actors: int = 2) -> None:
        self.rule = Once(how, actors=actors)
        work = msgspec.structs.replace(LONG, replicas=actors)
        config = a_config(steps=1, work=work, steering=STEERING)
        self.world = World(config, some_data(8, 0), actors=actors, rule=self.rule)
        self.world.slots = 32
        for _ in range(200):
            if self.rule.move is not None:
                break
            self.rule.armed = all(actor.running for actor in self.world.actors.values())
            self.world.one_round()
        assert self.rule.move is not None
        self.sample, self.source, self.target = self.rule.move[:3]
        self.world.perform(self.world.seat)

    def actor(self, name: str) -> ModelActor:
        return self.world.actors[name]

    def cut(self) -> Cut | None:
        """The cut arrives; its fact, which nobody has fetched."""
        self.deliver("CutSamples")
        return next(
            (f for f in self.actor(self.source).outbox.values() if isinstance(f, Cut)), None
        )

    def deliver(self, name: str) -> None:
        for letter in [letter for letter in self.world.letters if letter.name == name]:
            self.world.letters.remove(letter)
            letter.deliver()

    def lose(self, name: str) -> list[Letter]:
        """Such letters, which do not arrive unless the test delivers them."""
        found = [letter for letter in self.world.letters if letter.name == name]
        self.world.letters = [letter for letter in self.world.letters if letter.name != name]
        return found

    def handed_to(self) -> list[str]:
        """Who had the sample, in order."""
        step = self.world.seat.planner.book.open
        key = step.key(self.sample) if step else self.key
        self.key = key
        return [r.actor for r in self.world.records if isinstance(r, Dispatched) and r.key == key]

    def end(self) -> MigrationReport:
        self.handed_to()
        self.world.calm()
        assert self.world.outcome
        assert self.world.outcome.outcome == "complete"
        assert examine(self.world.evidence()).faults() == {}
        report = self.world.reports[0].migration
        assert report is not None
        return report


def test_a_sample_goes_on_with_its_target_and_its_kv() -> None:
    story = Story()
    report = story.end()
    assert story.handed_to() == [story.source, story.target]
    assert (report.ordered, report.moved, report.with_kv, report.failed) == (1, 1, 1, 0)
    assert (story.world.exports.read, story.world.exports.missed) == (1, 0)
    assert report.kv_tokens > 0
    assert report.moves[0].source == story.source


def test_without_kv_it_goes_on_from_its_journal() -> None:
    story = Story("recompute")
    report = story.end()
    assert story.handed_to() == [story.source, story.target]
    assert (report.moved, report.recomputed) == (1, 1)
    assert story.world.exports.granted == 0
    assert story.world.reports[0].samples.resumed == 1


def test_a_finish_that_meets_the_cut_is_the_sample_s_end() -> None:
    story = Story()
    cuts = story.lose("CutSamples")
    source = story.actor(story.source)
    while source.running:
        source.work()
    for letter in cuts:
        letter.deliver()
    report = story.end()
    assert (report.moved, report.finished, report.failed) == (0, 1, 0)
    assert story.handed_to() == [story.source]


def test_a_lost_cut_is_told_again() -> None:
    story = Story()
    story.lose("CutSamples")
    assert story.end().moved == 1


def test_a_target_that_dies_before_the_cut_leaves_the_sample_to_another() -> None:
    story = Story(actors=3)
    cuts = story.lose("CutSamples")
    story.lose("beat")
    story.world.kill_actor(story.target)
    story.world.tell_gone(story.target)
    for letter in cuts:
        letter.deliver()
    report = story.end()
    assert story.handed_to() == ["actor-3", "actor-2"]
    assert (report.moved, report.failed) == (0, 1)
    assert story.world.exports.read == 0


def test_a_target_that_dies_with_the_sample_leaves_its_journal() -> None:
    story = Story()
    assert story.cut() is not None
    story.world.fetch()
    story.world.perform(story.world.seat)
    story.deliver("Submit")
    assert story.handed_to()[-1] == story.target
    story.world.kill_actor(story.target)
    story.world.tell_gone(story.target)
    report = story.end()
    assert (report.moved, report.failed) == (0, 1)
    assert story.world.reports[0].samples.restarted == 0


def test_a_target_that_leaves_or_is_full_is_passed_over() -> None:
    story = Story()
    story.actor(story.target).drain()
    story.world.start_actor("late")
    report = story.end()
    assert report.failed == 1
    assert story.handed_to()[-1] != story.target


@pytest.mark.parametrize("cut", [False, True])
def test_a_source_that_dies_loses_the_kv_and_not_the_sample(cut: bool) -> None:
    story = Story()
    fact = story.cut() if cut else None
    assert (fact is not None) == cut
    story.world.kill_actor(story.source)
    story.world.tell_gone(story.source)
    report = story.end()
    assert story.handed_to()[-1] == story.target
    assert story.world.exports.read == 0
    assert report.ordered == 1


def test_an_expired_ticket_is_not_handed_on() -> None:
    story = Story()
    story.world.exports.lease = 0.0
    report = story.end()
    assert (report.moved, report.recomputed) == (1, 1)
    assert story.world.exports.missed == 0, "it was not even tried"


def test_a_ticket_that_expires_on_the_way_means_computing() -> None:
    story = Story()
    assert story.cut() is not None
    story.world.fetch()
    story.world.perform(story.world.seat)
    story.world.now += story.world.exports.lease
    story.deliver("Submit")
    assert story.world.exports.missed == 1
    assert story.end().ordered == 1


def test_a_planner_that_takes_over_hands_a_cut_sample_to_its_reader() -> None:
    story = Story()
    cuts = story.lose("CutSamples")
    story.world.kill_planner()
    for _ in range(2):
        story.world.one_round()
    for letter in cuts:
        letter.deliver()
    report = story.end()
    assert story.handed_to() == [story.source, story.target]
    assert story.world.exports.read == 1
    assert (report.ordered, report.moved) == (1, 1)


@pytest.mark.parametrize("zombie", [False, True])
@pytest.mark.parametrize("effects", range(0, 60, 3))
def test_a_planner_may_die_after_any_effect(effects: int, zombie: bool) -> None:
    story = Story()
    for _ in range(effects):
        story.world.perform(story.world.seat, 1)
        if not story.world.seat.todo:
            story.deliver("CutSamples")
            story.world.fetch()
            story.world.tick(0.1)
    story.world.kill_planner(zombie=zombie)
    story.end()


def test_the_source_keeps_the_kv_until_the_target_has_what_it_needs() -> None:
    story = Story()
    assert story.cut() is not None
    source = story.actor(story.source)
    source.drain()
    source.work()
    assert not source.gone
    story.end()
    source.beat()
    assert source.holding == {}
    assert source.gone


def test_a_sample_rests_after_a_move() -> None:
    story = Story()
    ping_pong = story.rule
    while not story.world.exports.read:
        story.world.one_round()
    ping_pong.move = None
    moved_at = story.world.now
    seen: list[bool] = []

    def again(scene: Scene) -> list[Move]:
        stays = {actor.name: actor.stays for actor in scene.actors}
        seen.append(stays.get(story.target, True))
        return []

    story.world.seat.planner._layout._migration._rule = again  # type: ignore[union-attr]
    while story.world.now < moved_at + 5.0 and not story.world.outcome:
        story.world.one_round()
    assert seen
    assert all(seen)


# --- tickets ----------------------------------------------------------------------------------


def a_ticket(reader: str, policy: str, seconds: float) -> KvTicket:
    return KvTicket(KvKey(policy, "prefix", 3, "layout"), "holder", 1, reader, seconds, b"x")


@given(
    reader=st.sampled_from(["a", "b"]),
    actor=st.sampled_from(["a", "b"]),
    version=st.integers(0, 1),
    seconds=st.integers(0, 60),
    later=st.integers(0, 60),
)
def test_a_ticket_serves_its_reader_its_policy_and_its_time(
    reader: str, actor: str, version: int, seconds: int, later: int
) -> None:
    tickets, policy = Tickets(), a_policy(version)
    tickets.keep(1, a_ticket(reader, a_policy(0).digest, seconds), 100.0)
    found = tickets.of(1, actor, policy, 100.0 + later)
    assert (found is not None) <= (reader == actor and version == 0 and later < seconds / 2)
    if reader == actor and version == 0 and later < seconds / 4:
        assert found is not None
    assert tickets.of(2, actor, policy, 100.0) is None
