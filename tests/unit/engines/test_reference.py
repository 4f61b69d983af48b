"""Reference mode: equal bits whatever the schedule (protocol.md 10)."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import Qwen2Config

from ebbtide.engines.torch.decoder import Decoder
from ebbtide.engines.torch.kv import KvRows
from ebbtide.engines.torch.promise import check_rows
from ebbtide.engines.torch.runner import Ints, Runner
from ebbtide.errors import Refused
from ebbtide.ports import Admission, EngineCut, EngineEvent, EngineFinished
from ebbtide.testing.engines import admission
from ebbtide.testing.tiny_models import VOCAB, Tiny, publish_tiny
from ebbtide.wire import Dispatch
from tests.unit.engines.rigs import LIMITS, decoder, drain, give, runner

REFERENCE = replace(LIMITS, slots=5, reference=True)
MOST_CUTS = 3
Bits = dict[int, tuple[bytes, bytes]]


@pytest.fixture(scope="session")
def odd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tiny, Runner]:
    """Sizes that are no powers of two, in an odd number of rows; the activations fill vectors of 32."""
    config = Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=48,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=256,
    )
    tiny = publish_tiny(tmp_path_factory.mktemp("odd"), config=config)
    return tiny, runner(tiny)


def _samples(tiny: Tiny) -> list[Admission]:
    prompts = [(5,), (9, 8, 7), tuple(range(2, 27)), (4,) * 17]
    return [
        admission(
            tiny.policy,
            seq=i,
            prompt=prompts[i // 3],
            max_new=(7, 18, 30)[i % 3],
            stops=(11, 12),
            temperature=(1.0, 0.7, 0.0)[i % 3],
        )
        for i in range(12)
    ]


@cache
def _whole(tiny: Tiny, using: Runner) -> Bits:
    """All samples on one actor, uncut."""
    one = decoder(tiny, REFERENCE, using=using)
    give(one, _samples(tiny))
    return _bits(drain(one))


def _bits(events: list[EngineEvent]) -> Bits:
    ends = [event for event in events if isinstance(event, EngineFinished)]
    return {end.dispatch.seq % 100: (end.tokens, end.logprobs) for end in ends}


def _moved(sample: Admission, cut: EngineCut) -> Admission:
    """The same sample for another actor, under a new dispatch."""
    seq = sample.assign.dispatch.seq + 100
    assign = msgspec.structs.replace(sample.assign, dispatch=Dispatch(1, 1, seq))
    return Admission(assign, sample.prompt, admission(assign.policy, resumed=cut).resumed)


def _roam(tiny: Tiny, using: Runner, rng: Random, actors: int, cuts: float) -> Bits:
    """Samples arrive in any order at any actor, are cut at random and go on at another."""
    many = [decoder(tiny, REFERENCE, using=using) for _ in range(actors)]
    todo = _samples(tiny)
    rng.shuffle(todo)
    events: list[EngineEvent] = []
    with torch.inference_mode():
        while todo or not all(each.idle for each in many):
            while todo and rng.random() < 0.7:
                give(rng.choice(many), [todo.pop()])
            for each in many:
                events += each.round() if not each.idle else []
                todo += _cut_some(each, rng, cuts)
    return _bits(events)


def _cut_some(each: Decoder, rng: Random, chance: float) -> list[Admission]:
    live = [*each.rows.samples, *each.waiting]
    picked = [s for s in live if rng.random() < chance and s.dispatch.seq < MOST_CUTS * 100]
    answers = [(sample.admission, each.cut(sample.dispatch)) for sample in picked]
    return [_moved(was, cut) for was, cut in answers if cut]


@given(st.integers(0, 1 << 32), st.integers(1, 4), st.sampled_from([0.0, 0.02, 0.2]))
@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.generate])
def test_bits_do_not_depend_on_actors_rows_neighbours_or_cuts(
    odd: tuple[Tiny, Runner], seed: int, actors: int, cuts: float
) -> None:
    rng = Random(seed)  # noqa: S311
    assert _roam(*odd, rng, actors, cuts) == _whole(*odd)


class _Partial(Runner):
    """Results of one row that differ in the last bit."""

    def __init__(self, model: Any, row: int) -> None:
        super().__init__(model)
        self._row = row

    def forward(self, kv: KvRows, rows: Ints, tokens: Ints, positions: Ints, **how: Any) -> Tensor:
        logits = super().forward(kv, rows, tokens, positions, **how)
        return logits * (1 + torch.from_numpy(rows == self._row)[:, None, None] * 2.0**-23)


@pytest.mark.parametrize("row", range(REFERENCE.slots))
def test_a_model_one_of_whose_rows_differs_is_refused(odd: tuple[Tiny, Runner], row: int) -> None:
    check_rows(odd[1], REFERENCE)
    with pytest.raises(Refused, match="reference mode"):
        check_rows(_Partial(odd[1].model, row), REFERENCE)


def test_a_cut_at_any_token_gives_the_same_bits(odd: tuple[Tiny, Runner]) -> None:
    tiny, using = odd
    whole = _whole(tiny, using)
    sample = next(s for s in _samples(tiny) if len(whole[s.assign.dispatch.seq][0]) == 4 * 30)
    tokens, logprobs = whole[sample.assign.dispatch.seq]
    for n in range(1, 30, 4):
        cut = EngineCut(sample.assign.dispatch, tokens[: 4 * n], logprobs[: 4 * n], ())
        one = decoder(tiny, REFERENCE, using=using)
        give(one, [_moved(sample, cut)])
        assert _bits(drain(one)) == {sample.assign.dispatch.seq: (tokens, logprobs)}
