from ebbtide.wire import (
    EngineStats,
    Fence,
    Heartbeat,
    KvKey,
    Ok,
    PolicyRef,
    PrefillBeat,
    Ref,
    Refusal,
)
from services.planner.core.book import Book
from services.planner.core.config import Patience
from services.planner.core.effects import Send
from services.planner.core.pen import Pen
from services.planner.core.prefills import GRACE, PrefillMeter, Prefills

POLICY, NEXT = (PolicyRef(n, 1, f"policy {n}") for n in range(2))
INDEX = Ref("index", "", 0)


def a_beat(
    number: int = 1,
    policy: PolicyRef | None = POLICY,
    state: str = "serving",
    *,
    stats: EngineStats | None = None,
    incarnation: str = "i",
) -> PrefillBeat:
    layout = "l" if policy else ""
    return PrefillBeat(
        "p0", incarnation, number, Fence(1, 1), policy, state, layout, stats or EngineStats()
    )


class Desk:
    """The planner's part that knows the service, and what it sends."""

    def __init__(self) -> None:
        self.pen = Pen(book=Book(job_uid="job-1"), now=0.0)
        self.prefills = Prefills(pen=self.pen, patience=Patience())

    def sent(self) -> list[Send]:
        return [effect for effect in self.pen.taken() if isinstance(effect, Send)]


def test_kv_is_promised_only_of_the_policy_that_is_shown() -> None:
    prefills = Desk().prefills
    assert prefills.kv(POLICY, 5) is None
    prefills.hear(a_beat())
    assert prefills.kv(POLICY, 5) == KvKey(POLICY.digest, "", 4, "l")
    assert prefills.kv(NEXT, 5) is None
    assert prefills.kv(POLICY, 1) is None


def test_a_service_that_is_loading_or_leaving_promises_nothing() -> None:
    prefills = Desk().prefills
    for number, state in enumerate(("loading", "draining", "empty")):
        prefills.hear(a_beat(number, state=state))
        assert prefills.kv(POLICY, 5) is None


def test_an_old_heartbeat_changes_nothing() -> None:
    prefills = Desk().prefills
    assert prefills.hear(a_beat(2))
    assert not prefills.hear(a_beat(1, None, "empty"))
    assert prefills.kv(POLICY, 5) is not None


def test_a_service_that_is_not_heard_is_forgotten() -> None:
    desk = Desk()
    desk.prefills.hear(a_beat())
    desk.pen.move(10.5)
    desk.prefills.lapse()
    assert desk.prefills.kv(POLICY, 5) is None


def test_the_service_is_told_the_policy_once_until_it_must_show_it() -> None:
    desk = Desk()
    desk.prefills.want(NEXT, INDEX)
    desk.prefills.hear(a_beat())
    [send] = desk.sent()
    assert send.to == "prefill/p0"
    desk.prefills.hear(a_beat(2))
    desk.prefills.replied(send.call, Ok(4))
    desk.prefills.hear(a_beat(3))
    assert desk.sent() == []
    desk.prefills.hear(a_beat(4))
    assert len(desk.sent()) == 1


def test_a_refused_load_is_sent_again_after_a_pause() -> None:
    desk = Desk()
    desk.prefills.want(NEXT, INDEX)
    desk.prefills.hear(a_beat())
    [send] = desk.sent()
    desk.prefills.replied(send.call, Refusal("temporary", ""))
    desk.prefills.hear(a_beat(2))
    assert desk.sent() == []
    desk.pen.move(0.6)
    desk.prefills.hear(a_beat(3))
    assert len(desk.sent()) == 1


def test_ready_actors_wait_a_moment_for_a_service_that_loads() -> None:
    desk = Desk()
    desk.prefills.want(POLICY, INDEX)
    assert not desk.prefills.is_near()
    desk.prefills.hear(a_beat(1, None, "loading"))
    assert desk.prefills.is_near()
    desk.pen.move(GRACE)
    assert not desk.prefills.is_near()
    desk.prefills.want(NEXT, INDEX)
    assert desk.prefills.is_near()


def test_actors_wait_for_the_beat_that_shows_what_a_service_was_told_to_load() -> None:
    desk = Desk()
    desk.prefills.want(POLICY, INDEX)
    desk.prefills.hear(a_beat(1, None, "empty"))
    [send] = desk.sent()
    desk.prefills.replied(send.call, Ok(2))
    assert desk.prefills.is_near()
    desk.prefills.hear(a_beat(2, POLICY))
    assert not desk.prefills.is_near()


def an_actor_beat(name: str, number: int, stats: EngineStats, incarnation: str = "i") -> Heartbeat:
    return Heartbeat(name, incarnation, number, None, POLICY, "serving", b"", (), stats)


def test_tokens_are_counted_step_by_step_over_all_processes() -> None:
    meter = PrefillMeter()
    meter.hear(a_beat(1, stats=EngineStats(prefill_tokens=100)))
    for name in ("a0", "a1"):
        stats = EngineStats(prefill_tokens=10, prefill_shared=300, prefill_imported=100)
        meter.hear(an_actor_beat(name, 1, stats))
    counts = meter.taken()
    assert (counts.needed, counts.computed, counts.in_service) == (820, 120, 100)
    assert (counts.imported, counts.saved_by_caching, counts.saved_by_dedup) == (200, 600, 100)
    assert counts.needed - counts.computed == counts.saved_by_caching + counts.saved_by_dedup
    meter.hear(an_actor_beat("a0", 2, EngineStats(prefill_tokens=15, prefill_shared=300)))
    assert meter.taken().computed == 5


def test_a_process_that_starts_anew_counts_from_nothing() -> None:
    meter = PrefillMeter()
    meter.hear(an_actor_beat("a0", 9, EngineStats(prefill_tokens=50)))
    meter.hear(an_actor_beat("a0", 1, EngineStats(prefill_tokens=7), "another"))
    assert meter.taken().computed == 57


def test_a_planner_that_takes_over_counts_from_what_it_hears_first() -> None:
    meter = PrefillMeter(takes_over=True)
    meter.hear(an_actor_beat("a0", 9, EngineStats(prefill_tokens=50)))
    meter.hear(an_actor_beat("a0", 10, EngineStats(prefill_tokens=52, prefill_seconds=0.5)))
    meter.hear(an_actor_beat("a0", 1, EngineStats(prefill_tokens=7), "another"))
    counts = meter.taken()
    assert (counts.computed, counts.actor_seconds) == (9, 0.5)
