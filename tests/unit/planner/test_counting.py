"""What actors counted is summed up once, whatever becomes of them."""

from __future__ import annotations

import msgspec

from ebbtide.catalogue import HANDED
from ebbtide.metrics import new_registry
from ebbtide.wire import Counted, EngineStats, Heartbeat
from services.decode.app.metrics import DecodeMetrics
from services.decode.core.totals import Totals
from services.planner.core.counting import CountMeter

EMPTY = EngineStats()


def a_beat(name: str, number: int, pulls: float, incarnation: str = "i") -> Heartbeat:
    counted = (Counted("kv_pulls", "imported", pulls),)
    empty = Heartbeat(name, incarnation, number, None, None, "serving", b"", (), EMPTY)
    return msgspec.structs.replace(empty, counted=counted)


def test_counts_are_those_of_all_actors_since_the_last_step() -> None:
    meter = CountMeter()
    for name, number, pulls in (("a0", 1, 2.0), ("a1", 1, 1.0), ("a0", 2, 5.0)):
        meter.hear(a_beat(name, number, pulls))
    assert meter.taken() == {"kv_pulls": {"imported": 6.0}}
    assert meter.taken() == {}


def test_the_last_heartbeat_of_an_actor_that_ended_counts() -> None:
    meter = CountMeter()
    meter.hear(a_beat("a0", 1, 2.0))
    meter.taken()
    meter.hear(a_beat("a0", 2, 3.0))
    meter.hear(a_beat("a0", 1, 4.0, "another"))
    assert meter.taken() == {"kv_pulls": {"imported": 5.0}}


def test_a_planner_that_takes_over_counts_from_what_it_hears_first() -> None:
    meter = CountMeter(takes_over=True)
    meter.hear(a_beat("a0", 9, 50.0))
    meter.hear(a_beat("a0", 10, 52.0))
    assert meter.taken() == {"kv_pulls": {"imported": 2.0}}


def test_actors_count_under_names_of_the_catalogue() -> None:
    metrics = DecodeMetrics(new_registry(counts=False))
    metrics.pulled("imported", 8, 0.5)
    metrics.prompt("miss")
    metrics.exported(4)
    metrics.loaded(1.0, 2)
    assert {one.name for one in metrics.totals.counted()} == set(HANDED)
    assert Counted("kv_bytes", "out", 4.0) in metrics.totals.counted()


def test_an_actor_hands_on_sums_in_order() -> None:
    totals = Totals()
    for label, by in (("out", 1.0), ("in", 2.0), ("out", 0.5)):
        totals.add("kv_bytes", label, by=by)
    assert totals.counted() == (Counted("kv_bytes", "in", 2.0), Counted("kv_bytes", "out", 1.5))
