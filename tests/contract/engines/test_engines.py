"""What every engine promises."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from ebbtide.errors import Corrupt, Refused
from ebbtide.ports import Admission, EngineCut, EngineFinished, NewTokens
from ebbtide.testing.engines import Outcome, admission, collect, decode, outcomes
from ebbtide.wire import (
    Dispatch,
    PolicyRef,
    Span,
    pack_floats,
    pack_ints,
    unpack_floats,
    unpack_ints,
)
from tests.contract.engines.benches import Bench


async def _cut_midway(bench: Bench, long: Admission) -> EngineCut:
    """Submit, wait for some tokens, cut."""
    bench.engine.submit(long)
    while not await bench.engine.events(timeout=1.0):
        pass
    bench.engine.cut(long.assign.dispatch)
    events = await collect(bench.engine, 1)
    end = outcomes(events)[long.assign.dispatch.seq].end
    assert isinstance(end, EngineCut)
    return end


def _again(first: Admission, cut: EngineCut, seq: int) -> Admission:
    """The same sample under another dispatch, resumed from `cut`."""
    assign = msgspec.structs.replace(first.assign, dispatch=Dispatch(1, 1, seq))
    resumed = admission(assign.policy, resumed=cut).resumed
    return Admission(assign, first.prompt, resumed)


def _needs_sleep(bench: Bench) -> None:
    if not bench.engine.caps.sleeps:
        pytest.skip("this engine says that it does not sleep")


async def test_every_dispatch_ends_once(bench: Bench) -> None:
    ends = await decode(bench.engine, [admission(bench.policy, seq=i) for i in range(11)])
    assert sorted(ends) == list(range(11))
    assert all(len(outcome.ends) == 1 for outcome in ends.values())
    assert await bench.engine.events(timeout=0.05) == []


async def test_a_response_never_exceeds_its_limit(bench: Bench) -> None:
    many = [admission(bench.policy, seq=i, max_new=1 + i) for i in range(8)]
    for seq, outcome in (await decode(bench.engine, many)).items():
        assert len(outcome.tokens) == len(outcome.logprobs) == 1 + seq
        assert outcome.finished.finish == "length"


async def test_a_stop_token_ends_the_response_and_belongs_to_it(bench: Bench) -> None:
    stops = tuple(range(2, 30))
    many = [admission(bench.policy, seq=i, max_new=60, stops=stops) for i in range(8)]
    ends = await decode(bench.engine, many)
    stopped = [o for o in ends.values() if o.finished.finish == "stop"]
    assert stopped
    for outcome in stopped:
        assert outcome.tokens[-1] in stops
        assert not set(outcome.tokens[:-1]) & set(stops)


async def test_log_probabilities_are_finite_and_not_positive(bench: Bench) -> None:
    outcome = (await decode(bench.engine, [admission(bench.policy, max_new=40)]))[0]
    assert all(-50 < value <= 0 for value in outcome.logprobs)


async def test_chunks_are_the_beginning_of_the_response(bench: Bench) -> None:
    many = [admission(bench.policy, seq=i, max_new=40) for i in range(6)]
    for outcome in (await decode(bench.engine, many)).values():
        assert outcome.chunks
        _assert_prefix(outcome)


def _assert_prefix(outcome: Outcome) -> None:
    at = 0
    for event in outcome.chunks:
        tokens, logprobs = unpack_ints(event.chunk.tokens), unpack_floats(event.chunk.logprobs)
        assert event.chunk.start == at
        at += len(tokens)
        assert list(tokens) == outcome.tokens[event.chunk.start : at]
        assert list(logprobs) == outcome.logprobs[event.chunk.start : at]
        assert event.chunk.spans == (Span(event.chunk.start, at, outcome.end.spans[0].policy),)


async def test_the_engine_stamps_its_policy(bench: Bench) -> None:
    outcome = (await decode(bench.engine, [admission(bench.policy, max_new=5)]))[0]
    assert outcome.end.spans == (Span(0, 5, bench.policy),)


async def test_a_repeated_submit_changes_nothing(bench: Bench) -> None:
    once = admission(bench.policy)
    bench.engine.submit(once)
    await decode(bench.engine, [once])
    bench.engine.submit(once)
    assert await bench.engine.events(timeout=0.05) == []


async def test_draws_do_not_depend_on_neighbours(bench: Bench) -> None:
    alone = await decode(bench.engine, [admission(bench.policy, noise=b"k", max_new=12)])
    others = [admission(bench.policy, seq=i, prompt=(9, i)) for i in range(1, 4)]
    same = admission(bench.policy, seq=4, noise=b"k", max_new=12)
    assert (await decode(bench.engine, [*others, same]))[4].tokens == alone[0].tokens


async def test_other_noise_gives_another_response(bench: Bench) -> None:
    ends = await decode(
        bench.engine, [admission(bench.policy, seq=i, max_new=20) for i in range(2)]
    )
    assert ends[0].tokens != ends[1].tokens


async def test_a_cut_answers_with_all_tokens_so_far(bench: Bench) -> None:
    long = admission(bench.policy, max_new=80)
    cut = await _cut_midway(bench, long)
    whole = (
        await decode(bench.engine, [admission(bench.policy, noise=b"noise 0", seq=1, max_new=80)])
    )[1]
    tokens = [int(token) for token in unpack_ints(cut.tokens)]
    assert 0 < len(tokens) < 80
    assert tokens == whole.tokens[: len(tokens)]
    assert cut.spans == (Span(0, len(tokens), bench.policy),)


async def test_a_cut_sample_goes_on_where_it_was(bench: Bench) -> None:
    long = admission(bench.policy, max_new=80)
    cut = await _cut_midway(bench, long)
    ends = await decode(
        bench.engine,
        [_again(long, cut, 1), admission(bench.policy, noise=b"noise 0", seq=2, max_new=80)],
    )
    known = 80 if bench.engine.caps.positional_noise else len(cut.tokens) // 4
    assert ends[1].tokens[:known] == ends[2].tokens[:known]
    assert ends[1].logprobs[:known] == pytest.approx(ends[2].logprobs[:known], abs=1e-4)
    assert ends[1].finished.spans == (Span(0, 80, bench.policy),)
    assert all(event.chunk.start >= len(cut.tokens) // 4 for event in ends[1].chunks)


async def test_a_resumed_sample_keeps_the_policy_of_its_old_tokens(bench: Bench) -> None:
    long = admission(bench.policy, max_new=80)
    cut = await _cut_midway(bench, long)
    n = len(cut.tokens) // 4
    old = PolicyRef(9, 1, "old")
    cut = msgspec.structs.replace(cut, spans=(Span(0, n, old),))
    ends = await decode(bench.engine, [_again(long, cut, 1)])
    assert ends[1].end.spans == (Span(0, n, old), Span(n, 80, bench.policy))


async def test_what_had_ended_before_it_was_resumed_ends_at_once(bench: Bench) -> None:
    short = admission(bench.policy, max_new=6)
    whole = (await decode(bench.engine, [short]))[0].finished
    cut = EngineCut(whole.dispatch, whole.tokens, whole.logprobs, whole.spans)
    again = (await decode(bench.engine, [_again(short, cut, 1)]))[1].finished
    assert (again.tokens, again.finish) == (whole.tokens, "length")


async def test_a_turn_goes_on_after_given_tokens_which_nobody_drew(bench: Bench) -> None:
    first = admission(bench.policy, max_new=30)
    drawn, given = pack_ints([3, 4, 5]), pack_ints([6, 7])
    logprobs = pack_floats([-1.0, -1.0, -1.0, *[float("nan")] * 2])
    turn = EngineCut(first.assign.dispatch, drawn + given, logprobs, (Span(0, 3, bench.policy),))
    end = (await decode(bench.engine, [_again(first, turn, 1)]))[1].finished
    assert end.tokens.startswith(drawn + given)
    assert end.spans == (Span(0, 3, bench.policy), Span(5, 30, bench.policy))
    assert np.isnan(unpack_floats(end.logprobs)).nonzero()[0].tolist() == [3, 4]


async def test_a_stop_token_that_was_given_ends_nothing(bench: Bench) -> None:
    first = admission(bench.policy, max_new=20, stops=(7,))
    tokens, logprobs = pack_ints([3, 7]), pack_floats([-1.0, float("nan")])
    turn = EngineCut(first.assign.dispatch, tokens, logprobs, (Span(0, 1, bench.policy),))
    end = (await decode(bench.engine, [_again(first, turn, 1)]))[1].finished
    assert len(end.tokens) // 4 > 2


async def test_cutting_what_waits_gives_it_back_as_it_came(bench: Bench) -> None:
    many = [admission(bench.policy, seq=i, max_new=60) for i in range(8)]
    for each in many:
        bench.engine.submit(each)
    bench.engine.cut(Dispatch(1, 1, 7))
    end = outcomes(await collect(bench.engine, 8))[7].end
    assert isinstance(end, EngineCut)
    assert (end.tokens, end.spans) == (b"", ())


async def test_cutting_what_has_finished_says_nothing_more(bench: Bench) -> None:
    outcome = (await decode(bench.engine, [admission(bench.policy)]))[0]
    assert isinstance(outcome.end, EngineFinished)
    bench.engine.cut(Dispatch(1, 1, 0))
    bench.engine.cut(Dispatch(1, 1, 99))
    assert await bench.engine.events(timeout=0.05) == []


async def test_a_sample_of_another_policy_is_refused(bench: Bench) -> None:
    failure = (await decode(bench.engine, [admission(bench.other.policy)]))[0].failure
    assert failure.code == "policy"


@pytest.mark.parametrize(
    "bad",
    [{"prompt": ()}, {"prompt": (5,) * 95}, {"prompt": (5, 1 << 30)}, {"max_new": 0}],
    ids=str,
)
async def test_what_cannot_be_decoded_is_refused_with_a_reason(
    bench: Bench, bad: dict[str, Any]
) -> None:
    failure = (await decode(bench.engine, [admission(bench.policy, **bad)]))[0].failure
    assert failure.code == "prompt"
    assert failure.detail


async def test_another_policy_is_served_after_it_was_loaded(bench: Bench) -> None:
    before = (await decode(bench.engine, [admission(bench.policy, max_new=12)]))[0]
    loaded = await bench.engine.load(bench.other.policy, bench.other.path)
    assert loaded.policy == bench.other.policy
    fresh = admission(bench.other.policy, seq=1, noise=b"noise 0", max_new=12)
    after = (await decode(bench.engine, [fresh]))[1]
    assert after.end.spans == (Span(0, 12, bench.other.policy),)
    assert after.end.spans[0].policy != before.end.spans[0].policy


async def test_loading_answers_the_probe(bench: Bench) -> None:
    loaded = await bench.engine.load(bench.other.policy, bench.other.path)
    expected = unpack_floats(bench.other.index.probe_logprobs)
    assert unpack_floats(loaded.probe_logprobs) == pytest.approx(expected, abs=1e-4)


async def test_nothing_is_loaded_while_samples_run(bench: Bench) -> None:
    bench.engine.submit(admission(bench.policy, max_new=80))
    with pytest.raises(Refused):
        await bench.engine.load(bench.other.policy, bench.other.path)
    await collect(bench.engine, 1)


async def test_an_index_of_another_policy_is_refused_and_nothing_is_served(bench: Bench) -> None:
    with pytest.raises(Corrupt):
        await bench.engine.load(bench.other.policy, bench.tiny.path)
    failure = (await decode(bench.engine, [admission(bench.policy)]))[0].failure
    assert failure.code == "policy"


async def test_stats_count_what_runs_and_what_waits(bench: Bench) -> None:
    drawn = bench.engine.stats().decode_tokens
    for i in range(7):
        bench.engine.submit(admission(bench.policy, seq=i, max_new=60))
    while not await bench.engine.events(timeout=1.0):
        pass
    stats = bench.engine.stats()
    assert (stats.running, stats.waiting, stats.slots) == (4, 3, 4)
    assert 0 < stats.kv_used <= stats.kv_total
    await collect(bench.engine, 7)
    assert (bench.engine.stats().running, bench.engine.stats().waiting) == (0, 0)
    assert bench.engine.stats().decode_tokens - drawn >= 7 * 60


async def test_silence_ends_at_the_time_out(bench: Bench) -> None:
    assert await bench.engine.events(timeout=0.01) == []


async def test_events_of_one_dispatch_come_in_order(bench: Bench) -> None:
    many = [admission(bench.policy, seq=i, max_new=30) for i in range(5)]
    for each in many:
        bench.engine.submit(each)
    events = await collect(bench.engine, 5)
    for i in range(5):
        mine = [event for event in events if event.dispatch.seq == i]
        assert all(isinstance(event, NewTokens) for event in mine[:-1])
        assert isinstance(mine[-1], EngineFinished)


async def test_an_engine_that_cannot_sleep_refuses_and_serves_on(bench: Bench) -> None:
    if not bench.engine.caps.sleeps:
        with pytest.raises(Refused):
            await bench.engine.sleep()
    assert (await decode(bench.engine, [admission(bench.policy)]))[0].finished


async def test_asleep_nothing_is_served_until_a_policy_is_loaded(bench: Bench) -> None:
    _needs_sleep(bench)
    first = admission(bench.policy, noise=b"k", max_new=12)
    before = (await decode(bench.engine, [first]))[0]
    await bench.engine.sleep()
    await bench.engine.sleep()
    refused = (await decode(bench.engine, [admission(bench.policy, seq=1)]))[1]
    assert refused.failure.code == "policy"
    await bench.engine.load(bench.tiny.policy, bench.tiny.path)
    after = (await decode(bench.engine, [admission(bench.policy, seq=2, noise=b"k", max_new=12)]))[
        2
    ]
    assert (after.tokens, after.logprobs) == (before.tokens, before.logprobs)


async def test_nothing_sleeps_while_samples_run(bench: Bench) -> None:
    bench.engine.submit(admission(bench.policy, max_new=80))
    with pytest.raises(Refused):
        await bench.engine.sleep()
    assert outcomes(await collect(bench.engine, 1))[0].finished


async def test_what_was_counted_stays_counted_asleep(bench: Bench) -> None:
    _needs_sleep(bench)
    await decode(bench.engine, [admission(bench.policy, max_new=12)])
    before = bench.engine.stats()
    await bench.engine.sleep()
    asleep = bench.engine.stats()
    assert asleep.decode_tokens == before.decode_tokens >= 11
    assert (asleep.running, asleep.kv_used, asleep.slots) == (0, 0, 4)
    assert not bench.engine.caps.kv_export
