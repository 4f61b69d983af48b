"""Who sleeps, by commands, replies and heartbeats: heartbeats have the last word."""

from __future__ import annotations

import pytest

from ebbtide.wire import CommandReply, EngineStats, Epoch, Heartbeat, Ok, Refusal, Sleep
from services.planner.core.book import Book
from services.planner.core.config import Patience
from services.planner.core.crew import Actor, Crew
from services.planner.core.curves import Curves
from services.planner.core.effects import ScalePool, Send
from services.planner.core.fleet import Fleet
from services.planner.core.parking import Parking
from services.planner.core.pen import Pen
from services.planner.core.steering import straight_profile
from tests.unit.planner.builders import UID

PROFILE = straight_profile("torch", first=0.01, more=0.001, start=10.0, wake=2.0)


class Pool:
    """Two actors that serve, `a` and `b`."""

    def __init__(self) -> None:
        book = Book(job_uid=UID)
        book.apply(Epoch(1, 1, 0, None))
        self.pen, self.crew = Pen(book=book, now=0.0), Crew(lease=100.0)
        self.curves = Curves(PROFILE, measured=True)
        self.loaded: list[str] = []
        self.parking = Parking(pen=self.pen, crew=self.crew, patience=Patience(), load=self._load)
        self.fleet = Fleet(
            pen=self.pen,
            crew=self.crew,
            curves=self.curves,
            parking=self.parking,
            replicas=2,
            maximum=2,
        )
        for name in "ab":
            self.hear(name, 1)

    def _load(self, actor: Actor) -> None:
        self.loaded.append(actor.name)

    def hear(self, name: str, number: int, state: str = "serving") -> None:
        beat = Heartbeat(name, "i", number, None, None, state, b"", (), EngineStats())
        sighting = self.crew.hear(beat, self.pen.now)
        assert sighting
        self.fleet.hear(sighting.actor)

    def park(self, name: str = "b", reply: CommandReply | None = None) -> None:
        """Tell it to sleep; with a reply, have that."""
        self.fleet.park([name])
        [send] = [effect for effect in self.pen.taken() if isinstance(effect, Send)]
        assert send.command == Sleep(self.pen.fence)
        if reply is not None:
            self.parking.replied(send.call, reply)
        self.call = send.call

    @property
    def asleep(self) -> list[str]:
        return [actor.name for actor in self.fleet.parked()]

    @property
    def awake(self) -> list[str]:
        return [actor.name for actor in self.fleet.present()]


def test_whoever_is_told_to_sleep_gets_nothing_more_and_stays_a_pod() -> None:
    pool = Pool()
    pool.park()
    assert (pool.awake, pool.asleep, pool.fleet.wanted) == (["a"], ["b"], 1)
    pool.fleet.scale(1)
    assert pool.pen.taken() == [ScalePool(2, ())]


def test_a_heartbeat_of_before_says_nothing_and_one_that_must_show_it_does() -> None:
    pool = Pool()
    pool.park(reply=Ok(3))
    pool.hear("b", 2)
    assert pool.asleep == ["b"]
    pool.hear("b", 3)
    assert (pool.awake, pool.asleep) == (["a", "b"], [])


@pytest.mark.parametrize(("code", "again"), [("busy", True), ("draining", True), ("unable", False)])
def test_whoever_refuses_is_awake_and_left_so_for_a_while(code: str, *, again: bool) -> None:
    pool = Pool()
    pool.park(reply=Refusal(code, "why"))
    assert (pool.awake, pool.fleet.wanted) == (["a", "b"], 2)
    assert not pool.fleet.can_park("b")
    pool.pen.move(1e6)
    assert pool.fleet.can_park("b") is again


def test_without_an_answer_heartbeats_tell() -> None:
    for state, asleep in (("serving", []), ("asleep", ["b"])):
        pool = Pool()
        pool.park()
        pool.parking.replied(pool.call, None)
        pool.hear("b", 2, state)
        assert pool.asleep == asleep


def test_whoever_sleeps_unasked_is_parked_and_another_process_of_it_is_not() -> None:
    pool = Pool()
    pool.hear("b", 2, "asleep")
    assert (pool.asleep, pool.fleet.wanted) == (["b"], 1)
    beat = Heartbeat("b", "another", 1, None, None, "empty", b"", (), EngineStats())
    assert pool.crew.hear(beat, 0.0)
    assert pool.asleep == []


def test_whoever_is_woken_is_coming_until_it_serves_and_the_time_is_learned() -> None:
    pool = Pool()
    pool.hear("b", 2, "asleep")
    assert pool.fleet.wake(5) == 1
    assert pool.loaded == ["b"]
    assert (pool.awake, pool.asleep, pool.fleet.wanted) == (["a"], [], 2)
    assert [one.due for one in pool.fleet.coming()] == [2.0]
    for number, state in ((3, "asleep"), (4, "loading")):
        pool.hear("b", number, state)
        assert pool.asleep == []
    pool.pen.move(6.0)
    pool.hear("b", 5)
    assert pool.awake == ["a", "b"]
    assert pool.curves.profile().file.wake_seconds == 6.0


def test_whoever_is_let_go_asleep_is_no_pod_of_the_pool() -> None:
    pool = Pool()
    pool.hear("b", 2, "asleep")
    pool.fleet.scale(1, ["b"])
    assert pool.pen.taken() == [ScalePool(1, ("b",))]
    assert pool.asleep == []


def test_who_sleeps_is_let_go_where_the_pool_has_no_room_for_it() -> None:
    pool = Pool()
    pool.park("b", Ok(2))
    pool.hear("c", 1)
    pool.fleet.scale(2)
    assert ScalePool(2, ("b",)) in pool.pen.taken()


def test_one_that_died_asleep_is_to_be_replaced() -> None:
    pool = Pool()
    pool.hear("b", 2, "asleep")
    pool.fleet.scale(1)
    pool.crew.gone("b")
    assert pool.fleet.wanted == 2
