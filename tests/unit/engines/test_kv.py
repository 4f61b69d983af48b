"""Keys and values that are shared, exported, brought along: the same answers for less work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from random import Random

import msgspec
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ebbtide.engines.torch.decoder import Decoder, Limits
from ebbtide.engines.torch.kv import Geometry, KvRows
from ebbtide.engines.torch.runner import Runner
from ebbtide.ports import Admission, EngineCut, EngineFinished, KvData, Resumed
from ebbtide.testing.engines import admission, outcomes
from ebbtide.testing.tiny_models import Tiny
from ebbtide.wire import Dispatch, pack_ints
from tests.unit.engines.rigs import decoder, drain, give, runner

LIMITS = Limits(slots=4, width=64, prefix_rows=8, prefill_chunk=16)
REFERENCE = replace(LIMITS, reference=True)
HEAD = tuple(range(2, 36))
PROMPTS = (HEAD, (*HEAD, 40), (*HEAD[:20], 41, 42), (5,), (*HEAD, 40, 41, 42), (9, 8, 7))
seeds = st.integers(0, 1 << 32)
Bits = dict[int, tuple[bytes, bytes]]


@pytest.fixture(scope="session")
def using(tiny: Tiny) -> Runner:
    return runner(tiny)


def sample(tiny: Tiny, seq: int, max_new: int = 16) -> Admission:
    prompt, heat = PROMPTS[seq % len(PROMPTS)], (1.0, 0.0)[seq % 2]
    return admission(tiny.policy, seq=seq, prompt=prompt, max_new=max_new, temperature=heat)


def again(was: Admission, cut: EngineCut, *, kv: bool = True) -> Admission:
    """The same sample under another dispatch, with what a cut left."""
    seq = was.assign.dispatch.seq + 100
    assign = msgspec.structs.replace(was.assign, dispatch=Dispatch(1, 1, seq))
    resumed = Resumed(cut.tokens, cut.logprobs, cut.spans)
    return Admission(assign, was.prompt, resumed, cut.kv if kv else None)


def bits(events: Sequence[object]) -> Bits:
    ends = [event for event in events if isinstance(event, EngineFinished)]
    return {end.dispatch.seq % 100: (end.tokens, end.logprobs) for end in ends}


def cut_at(one: Decoder, of: Admission, rounds: int) -> EngineCut:
    give(one, [of])
    with torch.inference_mode():
        for _ in range(rounds):
            one.round()
        cut = one.cut(of.assign.dispatch, export=True)
    assert cut is not None
    return cut


def counted(one: Decoder) -> tuple[int, int, int]:
    return one.prefiller.computed, one.prefiller.shared, one.prefiller.imported


# --- prefixes -----------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [LIMITS, REFERENCE], ids=["fast", "reference"])
def test_prompts_that_begin_alike_are_computed_once(
    tiny: Tiny, using: Runner, limits: Limits
) -> None:
    one = decoder(tiny, limits, using=using)
    give(one, [sample(tiny, seq, max_new=4) for seq in (0, 1, 2, 4)])
    drain(one)
    # 33 of the first; then what goes beyond the last whole block of 16 that they share.
    assert counted(one) == (33 + (34 - 32) + (21 - 16) + (36 - 32), 32 + 16 + 32, 0)


def test_without_sharing_each_prompt_is_computed(tiny: Tiny, using: Runner) -> None:
    one = decoder(tiny, replace(LIMITS, share_prefixes=False), using=using)
    give(one, [sample(tiny, seq, max_new=4) for seq in (0, 1, 2, 4)])
    drain(one)
    assert counted(one) == (33 + 34 + 21 + 36, 0, 0)


@pytest.mark.parametrize("rows", [1, 2, 8])
def test_shared_prefixes_do_not_change_the_answers(tiny: Tiny, using: Runner, rows: int) -> None:
    for share in (True, False):
        one = decoder(tiny, replace(LIMITS, share_prefixes=share, prefix_rows=rows), using=using)
        give(one, [sample(tiny, seq) for seq in range(12)])
        for seq, outcome in outcomes(drain(one)).items():
            prompt = PROMPTS[seq % len(PROMPTS)]
            logits = tiny.logits([*prompt, *outcome.tokens])[len(prompt) - 1 : -1].float()
            expected = torch.log_softmax(logits, dim=-1)
            found = expected.gather(1, torch.tensor(outcome.tokens)[:, None])[:, 0]
            torch.testing.assert_close(torch.tensor(outcome.logprobs), found, atol=1e-4, rtol=0)


# --- cut with KV --------------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [LIMITS, REFERENCE], ids=["fast", "reference"])
def test_a_sample_goes_on_with_its_kv_and_computes_nothing(
    tiny: Tiny, using: Runner, limits: Limits
) -> None:
    source, target = (decoder(tiny, limits, using=using) for _ in range(2))
    cut = cut_at(source, sample(tiny, 0), 5)
    assert cut.kv is not None
    assert cut.kv.key.n_tokens == len(HEAD) + 5 - 1
    give(target, [again(sample(tiny, 0), cut)])
    drain(target)
    assert counted(target) == (0, 0, len(HEAD) + 4)
    assert target.decoded == 16 - 5


def test_a_cut_takes_no_kv_unless_asked(tiny: Tiny, using: Runner) -> None:
    one = decoder(tiny, LIMITS, using=using)
    give(one, [sample(tiny, 0)])
    one.round()
    cut = one.cut(Dispatch(1, 1, 0))
    assert cut is not None
    assert cut.kv is None


def test_what_waits_hands_on_the_kv_that_it_brought(tiny: Tiny, using: Runner) -> None:
    source, target = (decoder(tiny, LIMITS, using=using) for _ in range(2))
    cut = cut_at(source, sample(tiny, 0), 3)
    give(target, [again(sample(tiny, 0), cut)])
    passed = target.cut(Dispatch(1, 1, 100), export=True)
    assert passed is not None
    assert passed.kv == cut.kv


@pytest.mark.parametrize("limits", [LIMITS, REFERENCE], ids=["fast", "reference"])
@pytest.mark.parametrize("what", ["policy_digest", "prefix_hash", "layout", "n_tokens", "bytes"])
def test_kv_of_something_else_is_computed_instead(
    tiny: Tiny, using: Runner, limits: Limits, what: str
) -> None:
    source, target = (decoder(tiny, limits, using=using) for _ in range(2))
    cut = cut_at(source, sample(tiny, 0), 5)
    assert cut.kv is not None
    nought = memoryview(bytes(cut.kv.data.nbytes))
    if what == "bytes":
        wrong = KvData(cut.kv.key, nought[4:])
    else:
        value = 30 if what == "n_tokens" else "other"
        wrong = KvData(msgspec.structs.replace(cut.kv.key, **{what: value}), nought)
    give(target, [again(sample(tiny, 0), msgspec.structs.replace(cut, kv=wrong))])
    assert target.prefiller.imported == 0
    whole = decoder(tiny, limits, using=using)
    give(whole, [sample(tiny, 0)])
    assert bits(drain(target))[0][0] == bits(drain(whole))[0][0]


def test_reference_shapes_are_part_of_the_layout(tiny: Tiny, using: Runner) -> None:
    layouts = {
        decoder(tiny, limits, using=using).layout
        for limits in (LIMITS, REFERENCE, replace(REFERENCE, slots=5))
    }
    assert layouts == {
        "rows1:float32:l2:h2:d8",
        "rows1:float32:l2:h2:d8:ref-4x64x16",
        "rows1:float32:l2:h2:d8:ref-5x64x16",
    }


# --- prefill for others -------------------------------------------------------------------------


@pytest.mark.parametrize("limits", [LIMITS, REFERENCE], ids=["fast", "reference"])
def test_siblings_share_one_imported_prompt(tiny: Tiny, using: Runner, limits: Limits) -> None:
    prefill, target = (decoder(tiny, limits, using=using) for _ in range(2))
    with torch.inference_mode():
        [kv] = prefill.prefill([pack_ints(HEAD)])
    first = Admission(sample(tiny, 0).assign, pack_ints(HEAD), None, kv)
    give(target, [first, sample(tiny, 6), sample(tiny, 12)])
    found = bits(drain(target))
    assert counted(target) == (0, 2 * 33, 33)
    whole = decoder(tiny, limits, using=using)
    give(whole, [sample(tiny, seq) for seq in (0, 6, 12)])
    assert {s: t for s, (t, _) in found.items()} == {
        s: t for s, (t, _) in bits(drain(whole)).items()
    }


def test_a_prefill_computes_what_prompts_share_once(tiny: Tiny, using: Runner) -> None:
    one = decoder(tiny, replace(LIMITS, prefix_rows=2), using=using)
    with torch.inference_mode():
        found = one.prefill([pack_ints(PROMPTS[i]) for i in (0, 1, 0, 4)])
    assert [kv.key.n_tokens for kv in found] == [33, 34, 33, 36]
    assert found[0].key == found[2].key
    assert sum(counted(one)) == 33 + 34 + 33 + 36
    assert one.prefiller.computed == 33 + 2 + 4


# --- laws ---------------------------------------------------------------------------------------


@cache
def whole(tiny: Tiny, using: Runner) -> Bits:
    one = decoder(tiny, replace(REFERENCE, share_prefixes=False), using=using)
    give(one, [sample(tiny, seq) for seq in range(9)])
    return bits(drain(one))


@given(seed=seeds, actors=st.integers(1, 3), share=st.booleans(), rows=st.integers(1, 8))
@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_bits_are_the_same_with_any_sharing_and_any_moves_with_or_without_kv(
    tiny: Tiny, using: Runner, *, seed: int, actors: int, share: bool, rows: int
) -> None:
    rng = Random(seed)  # noqa: S311
    limits = replace(REFERENCE, share_prefixes=share, prefix_rows=rows)
    many = [decoder(tiny, limits, using=using) for _ in range(actors)]
    assert bits(roam(tiny, many, decoder(tiny, limits, using=using), rng)) == whole(tiny, using)


def roam(tiny: Tiny, many: list[Decoder], prefill: Decoder, rng: Random) -> list[object]:
    """Samples come with or without prompt KV, are cut anywhere, go on with or without theirs."""
    todo, events = [sample(tiny, seq) for seq in range(9)], list[object]()
    rng.shuffle(todo)
    with torch.inference_mode():
        while todo or not all(each.idle for each in many):
            while todo and rng.random() < 0.7:
                give(rng.choice(many), [maybe_prefilled(todo.pop(), prefill, rng)])
            for each in many:
                events += each.round() if not each.idle else []
                todo += cut_some(each, rng)
    return events


def maybe_prefilled(one: Admission, prefill: Decoder, rng: Random) -> Admission:
    if one.kv is not None or rng.random() < 0.5 or len(one.prompt) <= 4:
        return one
    return msgspec.structs.replace(one, kv=prefill.prefill([one.prompt])[0])


def cut_some(each: Decoder, rng: Random) -> list[Admission]:
    live = [*each.rows.samples, *each.waiting]
    picked = [s for s in live if rng.random() < 0.1 and s.dispatch.seq < 400]
    cuts = [(s.admission, each.cut(s.dispatch, export=rng.random() < 0.7)) for s in picked]
    return [again(was, cut) for was, cut in cuts if cut]


@given(seed=seeds, share=st.booleans(), rows=st.integers(1, 8))
@settings(max_examples=5, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_outside_reference_mode_moves_change_log_probabilities_by_rounding_alone(
    tiny: Tiny, using: Runner, *, seed: int, share: bool, rows: int
) -> None:
    rng = Random(seed)  # noqa: S311
    limits = replace(LIMITS, share_prefixes=share, prefix_rows=rows)
    many = [decoder(tiny, limits, using=using) for _ in range(2)]
    found = bits(roam(tiny, many, decoder(tiny, limits, using=using), rng))
    for seq, (tokens, logprobs) in found.items():
        assert tokens == whole(tiny, using)[seq][0]
        mine, theirs = (
            torch.frombuffer(bytearray(each), dtype=torch.float32)
            for each in (logprobs, whole(tiny, using)[seq][1])
        )
        torch.testing.assert_close(mine, theirs, atol=1e-4, rtol=0)


@given(seed=seeds, share=st.booleans(), rows=st.integers(1, 8), reference=st.booleans())
@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_every_token_was_computed_shared_or_imported(
    tiny: Tiny, using: Runner, *, seed: int, share: bool, rows: int, reference: bool
) -> None:
    rng = Random(seed)  # noqa: S311
    limits = replace(LIMITS, share_prefixes=share, prefix_rows=rows, reference=reference, slots=9)
    one, prefill = (decoder(tiny, limits, using=using) for _ in range(2))
    needed = 0
    with torch.inference_mode():
        for seq in rng.sample(range(9), 9):
            one_more = maybe_prefilled(sample(tiny, seq), prefill, rng)
            give(one, [one_more])
            needed += len(one_more.prompt) // 4 - 1
            one.round()
    assert sum(counted(one)) == needed


# --- bytes --------------------------------------------------------------------------------------


def test_an_export_is_laid_out_by_layer_kind_head_position_and_dimension() -> None:
    geometry = Geometry(2, 3, 4, torch.float32, torch.device("cpu"))
    rows = KvRows(2, 8)
    rows.prepare(geometry)
    for i, pair in enumerate(rows._layers):
        for j, stored in enumerate(pair):
            shape = stored[1].shape
            stored[1] = torch.arange(stored[1].numel()).reshape(shape) + 1000 * i + 100 * j
    data = rows.export(1, 5)
    whole = torch.frombuffer(bytearray(data), dtype=torch.float32).reshape(2, 2, 3, 5, 4)
    assert data.nbytes == geometry.size(5)
    assert whole[1, 1, 2, 4, 3] == 1100 + (2 * 8 + 4) * 4 + 3
    other = KvRows(2, 6)
    other.prepare(geometry)
    other.load(0, data, 3)
    for mine, theirs in zip(other._layers, rows._layers, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            assert torch.equal(a[0, :, :3], b[1, :, :3])
            assert not a[0, :, 3:].any()
