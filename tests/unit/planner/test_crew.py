"""What heartbeats prove about hand-outs."""

from __future__ import annotations

import msgspec

from ebbtide.wire import Dispatch, EngineStats, Heartbeat, pack_ints
from services.planner.core.crew import UNANSWERED, Crew
from services.planner.core.samples import code_of

HAND = Dispatch(1, 1, 7)
CODE = code_of(HAND)


def beat(
    number: int, *, running: bool = False, outbox: bool = False, incarnation: str = "i"
) -> Heartbeat:
    rows = [(1, 1, 7, 3)] if running else []
    shown = (HAND,) if outbox else ()
    packed = pack_ints(rows)
    stats = EngineStats(slots=4)
    return Heartbeat("a", incarnation, number, None, None, "serving", packed, shown, stats)


def crew_with(due: int) -> Crew:
    crew = Crew(lease=10.0)
    crew.hear(beat(1), now=0.0)
    actor = crew.get("a")
    assert actor
    actor.out[CODE] = due
    return crew


def lost(crew: Crew, heard: Heartbeat) -> list[int]:
    sighting = crew.hear(heard, now=1.0)
    return sighting.lost if sighting else []


def test_a_hand_out_missing_after_the_reply_said_it_must_show_is_lost() -> None:
    assert lost(crew_with(3), beat(3)) == [CODE]


def test_an_earlier_heartbeat_proves_nothing() -> None:
    assert lost(crew_with(3), beat(2)) == []


def test_an_unanswered_submit_is_not_lost_by_absence() -> None:
    assert lost(crew_with(UNANSWERED), beat(5)) == []


def test_a_hand_out_that_was_seen_is_lost_when_it_is_seen_no_more() -> None:
    crew = crew_with(UNANSWERED)
    assert lost(crew, beat(2, running=True)) == []
    assert lost(crew, beat(3)) == [CODE]


def test_a_hand_out_in_the_outbox_is_not_lost() -> None:
    assert lost(crew_with(0), beat(2, outbox=True)) == []


def test_a_new_process_has_lost_what_it_does_not_show() -> None:
    assert lost(crew_with(UNANSWERED), beat(1, incarnation="j")) == [CODE]


def test_a_late_heartbeat_of_an_ended_process_is_ignored() -> None:
    crew = crew_with(0)
    crew.hear(beat(1, running=True, incarnation="j"), now=1.0)
    assert crew.hear(beat(9), now=2.0) is None


def test_a_repeated_heartbeat_is_ignored() -> None:
    crew = crew_with(0)
    assert crew.hear(beat(1), now=1.0) is None


def test_a_lease_lapses_when_nothing_is_heard() -> None:
    crew = crew_with(0)
    assert crew.lapsed(10.0) == []
    assert [actor.name for actor in crew.lapsed(10.1)] == ["a"]
    assert len(crew) == 0


def test_what_the_ledger_says_is_out_gets_a_full_lease() -> None:
    crew = Crew(lease=10.0)
    crew.expect("a", CODE, now=100.0)
    assert crew.lapsed(110.0) == []
    assert lost(crew, beat(1)) == [CODE]


def test_what_comes_back_goes_to_its_own_actor_or_to_whoever_has_least() -> None:
    crew = Crew(lease=10.0)
    for name, out, state in (("a", 2, "serving"), ("b", 1, "serving"), ("c", 0, "draining")):
        crew.hear(msgspec.structs.replace(beat(1), actor=name, state=state), now=0.0)
        found = crew.get(name)
        assert found
        found.out.update(dict.fromkeys(range(out), UNANSWERED))
    assert crew.heirs("a", lambda _: 0) == ["a"]
    assert crew.heirs("c", lambda _: 0) == ["b", "a"]
    assert crew.heirs("", lambda name: 9 * (name == "b")) == ["a", "b"]
