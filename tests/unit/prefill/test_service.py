import pytest

from ebbtide.wire import Drain, Ok, Refusal
from services.prefill.core.desk import Limits
from services.prefill.core.messages import (
    Answer,
    Commanded,
    Compute,
    Computed,
    ComputeFailed,
    Drop,
    Export,
    Exported,
    Gone,
    Leave,
    LoadFailed,
    PlannerSeen,
    Release,
    StillOpen,
)
from tests.unit.prefill.rigs import (
    FENCE,
    LAYOUT,
    NEWER,
    OLDER,
    OTHER,
    POLICY,
    SIZE,
    Bench,
    key,
    load,
)


def test_a_prompt_is_computed_once_for_all_that_ask() -> None:
    bench = Bench().serving()
    numbers = [bench.ask(reader=reader) for reader in ("a0", "a1", "a2")]
    assert [effect.key for effect in bench.did(Compute)] == [key()]
    bench.post(Computed(key(), SIZE))
    later = bench.ask(reader="a3")
    bench.export()
    readers = [bench.ticket(number).reader for number in (*numbers, later)]
    assert readers == ["a0", "a1", "a2", "a3"]
    assert bench.did(Compute) == []


def test_a_request_before_any_policy_is_refused() -> None:
    bench = Bench()
    assert bench.code(bench.ask()) == "policy"


def test_a_request_for_another_policy_is_refused() -> None:
    bench = Bench().serving()
    assert bench.code(bench.ask(policy=OTHER)) == "policy"
    assert bench.code(bench.ask(wanted=key(0, OTHER))) == "unknown"


def test_a_key_that_is_not_the_prompts_is_refused() -> None:
    bench = Bench().serving()
    assert bench.code(bench.ask(0, wanted=key(1))) == "unknown"
    assert bench.did(Compute) == []


def test_a_request_of_a_superseded_planners_hand_out_is_refused() -> None:
    bench = Bench().serving()
    assert bench.code(bench.ask(fence=OLDER)) == "fenced"


def test_a_newer_planners_request_fences_the_older_planner() -> None:
    bench = Bench().serving()
    bench.ask(fence=NEWER)
    bench.post(Commanded(load(OTHER)))
    assert bench.reply() == Refusal("fenced", f"a newer planner commands: {NEWER}", seen=NEWER)


def test_only_so_many_prompts_are_computed_together() -> None:
    bench = Bench().serving()
    for n in range(3):
        bench.ask(n)
    assert [effect.key for effect in bench.did(Compute)] == [key(0), key(1)]
    bench.post(Computed(key(0), SIZE))
    assert [effect.key for effect in bench.did(Compute)] == [key(2)]


def test_more_requests_than_may_wait_are_refused() -> None:
    bench = Bench().serving()
    numbers = [bench.ask(n) for n in range(7)]
    assert bench.code(numbers[-1]) == "full"
    assert len(bench.did(Answer)) == 1


def test_more_exports_than_may_be_held_are_refused() -> None:
    bench = Bench(Limits(open=2)).serving()
    bench.post(StillOpen(2))
    assert bench.code(bench.ask()) == "full"
    bench.post(StillOpen(1))
    bench.ask()
    assert len(bench.did(Compute)) == 1


def test_a_request_is_answered_by_its_deadline() -> None:
    bench = Bench().serving()
    number = bench.ask()
    bench.tick(4.9)
    assert bench.did(Answer) == []
    bench.tick(0.1)
    assert bench.code(number) == "late"


def test_nobody_waits_longer_than_a_third_of_the_hold() -> None:
    bench = Bench(Limits(hold=6.0)).serving()
    number = bench.ask()
    bench.tick(2.0)
    assert bench.code(number) == "late"


def test_an_export_that_comes_too_late_is_released() -> None:
    bench = Bench().serving()
    number = bench.ask()
    bench.compute()
    [export] = bench.did(Export)
    bench.tick(5.0)
    assert bench.code(number) == "late"
    bench.effects.append(export)
    bench.export()
    assert len(bench.did(Release)) == 1
    assert len(bench.did(Answer)) == 1


def test_what_nobody_waits_for_any_more_is_not_begun() -> None:
    bench = Bench().serving()
    for n in range(3):
        bench.ask(n)
    bench.did(Compute)
    bench.tick(5.0)
    bench.post(Computed(key(0), SIZE))
    assert bench.did(Compute) == []


def test_the_least_recently_used_prompt_goes_first() -> None:
    bench = Bench().serving()
    for n in (0, 1, 2, 0, 3):
        bench.ask(n)
        bench.compute()
        bench.export()
    assert [effect.key for effect in bench.did(Drop)] == [key(1)]


def test_a_prompt_larger_than_all_that_is_kept_still_reaches_its_readers() -> None:
    bench = Bench(Limits(keep=SIZE - 1)).serving()
    number = bench.ask()
    bench.compute()
    assert [type(effect) for effect in bench.effects if not isinstance(effect, Answer)][-2:] == [
        Export,
        Drop,
    ]
    bench.export()
    assert bench.ticket(number).reader == "a0"


def test_a_prompt_that_cannot_be_computed_is_refused_to_all() -> None:
    bench = Bench().serving()
    numbers = [bench.ask(reader=reader) for reader in ("a0", "a1")]
    bench.post(ComputeFailed(key(), "too long"))
    assert [bench.code(number) for number in numbers] == ["unknown", "unknown"]


def test_what_cannot_be_exported_is_refused() -> None:
    bench = Bench().serving()
    number = bench.ask()
    bench.compute()
    bench.post(Exported(number, None))
    assert bench.code(number) == "temporary"


def test_a_new_policy_waits_for_what_is_being_computed() -> None:
    bench = Bench().serving()
    numbers = [bench.ask(n) for n in range(3)]
    bench.loads()
    bench.post(Commanded(load(OTHER)))
    assert bench.code(numbers[2]) == "policy"
    assert bench.loads() == []
    bench.compute()
    assert bench.loads() == [OTHER]
    assert {effect.key for effect in bench.did(Drop)} == {key(0), key(1)}


def test_a_policy_about_to_go_takes_no_requests() -> None:
    bench = Bench().serving()
    bench.ask(0)
    bench.post(Commanded(load(OTHER)))
    assert bench.code(bench.ask(1)) == "policy"


def test_a_load_is_tried_again_until_it_is_given_up() -> None:
    bench = Bench(Limits(load_tries=2, load_pause=1.0))
    bench.post(Commanded(load()))
    bench.post(LoadFailed(POLICY, "no"))
    assert bench.loads() == [POLICY]
    bench.tick(1.0)
    assert bench.loads() == [POLICY]
    bench.post(LoadFailed(POLICY, "never", lasting=True))
    [gone] = bench.did(Gone)
    assert gone.unable == LoadFailed(POLICY, "never", lasting=True)


@pytest.mark.parametrize("notice", [Leave(), Commanded(Drain(FENCE))])
def test_a_service_that_leaves_answers_first(notice: Leave | Commanded) -> None:
    bench = Bench().serving()
    number = bench.ask()
    bench.post(notice)
    assert bench.code(bench.ask(1)) == "draining"
    assert bench.did(Gone) == []
    bench.compute()
    bench.export()
    assert bench.ticket(number)
    assert bench.did(Gone) == []
    bench.post(StillOpen(0))
    assert len(bench.did(Gone)) == 1


def test_without_a_planner_the_service_ends() -> None:
    bench = Bench().serving()
    bench.tick(599.0)
    bench.post(PlannerSeen(NEWER))
    bench.tick(599.0)
    assert bench.did(Gone) == []
    bench.tick(1.0)
    assert [effect.orphaned for effect in bench.did(Gone)] == [True]


def test_a_heartbeat_shows_what_is_held_and_done() -> None:
    bench = Bench()
    bench.post(Commanded(load()))
    assert bench.reply() == Ok(1)
    assert bench.beat.state == "loading"
    bench = Bench().serving()
    for reader in ("a0", "a1"):
        bench.ask(reader=reader)
    bench.compute()
    bench.export()
    beat = bench.beat
    assert (beat.policy, beat.layout, beat.state) == (POLICY, LAYOUT, "serving")
    assert (beat.computed, beat.granted, beat.granted_tokens) == (1, 2, 4)
