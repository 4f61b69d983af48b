"""The actors' profile as reports correct it, and what the pool is thought to have."""

from __future__ import annotations

from typing import Any

import pytest

from ebbtide.reports import PhaseSeconds
from ebbtide.wire import EngineStats, Epoch, Heartbeat
from services.planner.core.book import Book
from services.planner.core.config import Patience
from services.planner.core.crew import Crew
from services.planner.core.curves import Curves
from services.planner.core.effects import ScalePool
from services.planner.core.fleet import Fleet
from services.planner.core.parking import Parking
from services.planner.core.pen import Pen
from services.planner.core.rhythm import Rhythm
from services.planner.core.steering import straight_profile
from tests.unit.planner.builders import UID

GUESS = straight_profile("torch", first=0.010, more=0.001, start=10.0)


def beat(actor: str = "a", number: int = 1, state: str = "serving", **stats: Any) -> Heartbeat:
    found = EngineStats(**stats)
    return Heartbeat(actor, "i", number, None, None, state, b"", (), found)


def tpot(curves: Curves, batch: int) -> float:
    return float(curves.profile().tpot(batch, 0))


def test_a_guessed_curve_is_scaled_to_the_first_report_however_far_off_it_was() -> None:
    curves = Curves(GUESS, measured=False)
    curves.hear(beat(running=1, tpot=0.2))
    assert tpot(curves, 1) == pytest.approx(0.2)
    assert tpot(curves, 11) == pytest.approx(0.4)


def test_a_measured_curve_is_only_corrected() -> None:
    curves = Curves(GUESS, measured=True)
    curves.hear(beat(running=1, tpot=0.2))
    assert 0.010 < tpot(curves, 1) <= 0.040


@pytest.mark.parametrize("stats", [{"running": 0, "tpot": 0.2}, {"running": 3, "tpot": 0.0}])
def test_an_actor_that_decodes_nothing_says_nothing(stats: dict[str, Any]) -> None:
    curves = Curves(GUESS, measured=False)
    curves.hear(beat(**stats))
    assert tpot(curves, 1) == pytest.approx(0.010)
    assert curves.reports == 0


def a_fleet(replicas: int = 1) -> tuple[Fleet, Pen, Crew, Curves]:
    book = Book(job_uid=UID)
    book.apply(Epoch(1, 1, 0, None))
    pen, crew, curves = Pen(book=book, now=0.0), Crew(lease=10.0), Curves(GUESS, measured=True)
    parking = Parking(pen=pen, crew=crew, patience=Patience(), load=lambda _: None)
    fleet = Fleet(pen=pen, crew=crew, curves=curves, parking=parking, replicas=replicas, maximum=4)
    return fleet, pen, crew, curves


def hear(fleet: Fleet, crew: Crew, message: Heartbeat, now: float) -> None:
    sighting = crew.hear(message, now)
    assert sighting
    fleet.hear(sighting.actor)


def test_what_was_asked_for_counts_as_coming_until_nobody_believes_in_it() -> None:
    fleet, pen, crew, _ = a_fleet()
    hear(fleet, crew, beat("a"), 0.0)
    fleet.scale(3)
    assert [one.due for one in fleet.coming()] == [10.0, 10.0]
    pen.move(31.0)
    assert fleet.coming() == []


def test_a_start_is_timed_from_the_asking_until_the_actor_serves() -> None:
    fleet, pen, crew, curves = a_fleet()
    hear(fleet, crew, beat("a"), 0.0)
    fleet.scale(2)
    pen.move(3.0)
    hear(fleet, crew, beat("b", 1, "loading"), 3.0)
    pen.move(4.0)
    hear(fleet, crew, beat("b", 2), 4.0)
    assert curves.profile().startup_seconds == 4.0


def test_an_actor_that_was_there_before_tells_nothing_but_what_its_pod_does() -> None:
    fleet, pen, crew, curves = a_fleet()
    pen.move(50.0)
    hear(fleet, crew, beat("a"), 50.0)
    assert curves.profile().startup_seconds == 10.0
    fleet.began("b", 48.0)
    hear(fleet, crew, beat("b", state="empty"), 50.0)
    assert curves.profile().startup_seconds == 2.0


def test_who_was_let_go_is_named_until_it_is_gone_and_gets_nothing() -> None:
    fleet, pen, crew, _ = a_fleet(2)
    for name in "ab":
        hear(fleet, crew, beat(name), 0.0)
    fleet.scale(1, ["b"])
    fleet.scale(1)
    assert pen.taken() == [ScalePool(1, ("b",)), ScalePool(1, ("b",))]
    assert [actor.name for actor in fleet.present()] == ["a"]
    crew.gone("b")
    fleet.scale(2)
    assert pen.taken() == [ScalePool(2, ())]


def test_the_first_step_says_nothing_of_planning_for_it_waited_for_others() -> None:
    rhythm = Rhythm()
    assert rhythm.of("learn") is None
    rhythm.heard(PhaseSeconds(plan=40.0, sync=5.0, learn=8.0), trained=True)
    assert rhythm.of("plan", "sync", "learn") == 8.0
    rhythm.heard(PhaseSeconds(plan=2.0, learn=4.0), trained=True)
    assert rhythm.of("plan", "learn") == 7.0


def test_the_closing_step_has_no_update_to_learn_from() -> None:
    rhythm = Rhythm()
    rhythm.heard(PhaseSeconds(learn=8.0), trained=True)
    rhythm.heard(PhaseSeconds(learn=0.0), trained=False)
    assert rhythm.of("learn") == 8.0
