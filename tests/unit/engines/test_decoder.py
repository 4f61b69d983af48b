"""Continuous batching on a real, tiny model, round by round."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.engines.torch.decoder import Limits
from ebbtide.engines.torch.runner import build_model
from ebbtide.errors import Refused
from ebbtide.ports import EngineCut, EngineFailed, EngineFinished, NewTokens
from ebbtide.testing.engines import Outcome, admission, outcomes
from ebbtide.testing.tiny_models import Tiny, publish_tiny, qwen2
from ebbtide.wire import Dispatch
from tests.unit.engines.rigs import LIMITS, decoder, drain, give, runner

PROMPTS = ((5,), (9, 8, 7, 6), tuple(range(2, 23)))
SMALL: dict[str, Any] = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
}
ARCHITECTURES = {
    "qwen2 untied": qwen2(tied=False),
    "llama": transformers.LlamaConfig(**SMALL),
    "qwen3": transformers.Qwen3Config(**SMALL, num_key_value_heads=2, head_dim=8),
    "gpt2": transformers.GPT2Config(
        vocab_size=61,
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=128,
        bos_token_id=1,
        eos_token_id=1,
    ),
    "sliding window": transformers.MistralConfig(**SMALL, num_key_value_heads=2, sliding_window=6),
    "mixed windows": transformers.Gemma3TextConfig(
        **SMALL, num_key_value_heads=2, head_dim=8, sliding_window=6
    ),
}


def _expected(tiny: Tiny, prompt: tuple[int, ...], tokens: list[int], t: float) -> torch.Tensor:
    """Log-probabilities of `tokens` by a plain forward over the whole text."""
    logits = tiny.logits([*prompt, *tokens])[len(prompt) - 1 : -1].float()
    logprobs = torch.log_softmax(logits / (t or 1.0), dim=-1)
    return logprobs.gather(1, torch.tensor(tokens)[:, None])[:, 0]


def _assert_true(tiny: Tiny, prompt: tuple[int, ...], outcome: Outcome, t: float) -> None:
    expected = _expected(tiny, prompt, outcome.tokens, t)
    torch.testing.assert_close(torch.tensor(outcome.logprobs), expected, atol=1e-4, rtol=0)


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.6, 1.0])
def test_log_probabilities_are_those_of_the_model(
    tiny: Tiny, temperature: float, reference: bool
) -> None:
    one = decoder(tiny, replace(LIMITS, reference=reference))
    many = [
        admission(
            tiny.policy, seq=i, prompt=PROMPTS[i % 3], max_new=20 + i, temperature=temperature
        )
        for i in range(9)
    ]
    give(one, many)
    for seq, outcome in outcomes(drain(one)).items():
        _assert_true(tiny, PROMPTS[seq % 3], outcome, temperature)


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architectures_are_served_rightly(tmp_path: Path, name: str) -> None:
    config: Any = ARCHITECTURES[name]
    tiny = publish_tiny(tmp_path, config=config)
    one = decoder(tiny)
    give(one, [admission(tiny.policy, seq=i, prompt=PROMPTS[i], max_new=20) for i in range(3)])
    for seq, outcome in outcomes(drain(one)).items():
        _assert_true(tiny, PROMPTS[seq], outcome, 1.0)


def test_a_model_with_recurrent_layers_is_refused(tmp_path: Path) -> None:
    transformers.MambaConfig(vocab_size=61, hidden_size=32, num_hidden_layers=1).save_pretrained(
        tmp_path
    )
    with pytest.raises(Refused, match="linear_attention"):
        build_model(tmp_path, device="cpu", dtype=torch.float32)


def test_greedy_follows_transformers_generate(tiny: Tiny) -> None:
    one = decoder(tiny)
    give(one, [admission(tiny.policy, prompt=PROMPTS[2], max_new=24, temperature=0.0)])
    ids = torch.tensor([PROMPTS[2]])
    expected = tiny.model.generate(
        ids, max_new_tokens=24, min_new_tokens=24, do_sample=False, pad_token_id=0
    )
    assert outcomes(drain(one))[0].tokens == expected[0, len(PROMPTS[2]) :].tolist()


def test_a_prompt_is_computed_once_for_all_siblings(tiny: Tiny) -> None:
    one = decoder(tiny)
    give(one, [admission(tiny.policy, seq=i, prompt=PROMPTS[2]) for i in range(4)])
    one.round()
    give(one, [admission(tiny.policy, seq=i, prompt=PROMPTS[2]) for i in range(4, 9)])
    drain(one)
    assert one.prefiller.computed == len(PROMPTS[2]) - 1


def test_a_prompt_pushed_out_is_computed_again(tiny: Tiny) -> None:
    one = decoder(tiny, replace(LIMITS, prefix_rows=1))
    for seq, prompt in enumerate(((1, 2, 3), (4, 5, 6), (1, 2, 3))):
        give(one, [admission(tiny.policy, seq=seq, prompt=prompt)])
    outcome = outcomes(drain(one))[2]
    assert one.prefiller.computed == 6
    _assert_true(tiny, (1, 2, 3), outcome, 1.0)


def test_siblings_do_not_share_their_first_token(tiny: Tiny) -> None:
    one = decoder(tiny, replace(LIMITS, slots=16))
    give(one, [admission(tiny.policy, seq=i, max_new=1) for i in range(16)])
    assert len({tuple(o.tokens) for o in outcomes(drain(one)).values()}) > 1


def test_the_kv_budget_holds_samples_back(tiny: Tiny) -> None:
    one = decoder(tiny, replace(LIMITS, kv_tokens=64))
    give(one, [admission(tiny.policy, seq=i, prompt=(3,) * 10, max_new=20) for i in range(4)])
    one.round()
    assert (one.rows.n, len(one.waiting)) == (2, 2)
    assert len(outcomes(drain(one))) == 4


def test_a_budget_that_could_hold_no_sample_is_refused() -> None:
    with pytest.raises(Refused):
        Limits(slots=2, width=64, kv_tokens=63)


def test_prefill_does_not_hold_up_decoding_for_long(tiny: Tiny) -> None:
    one = decoder(tiny)
    give(one, [admission(tiny.policy, seq=i, prompt=(i + 1,) * 12) for i in range(3)])
    one.round()
    assert one.rows.n == 1


def test_rows_that_end_make_room_at_once(tiny: Tiny) -> None:
    one = decoder(tiny, replace(LIMITS, prefill_chunk=64))
    give(one, [admission(tiny.policy, seq=i, max_new=1 + 9 * (i % 2)) for i in range(8)])
    with torch.inference_mode():
        one.round()
        one.round()
    assert sorted(sample.dispatch.seq for sample in one.rows.samples) == [1, 3, 5]
    assert len(one.waiting) == 2


def test_logits_that_are_not_finite_fail_the_sample(tmp_path: Path) -> None:
    def spoil(model: Any) -> None:
        model.get_input_embeddings().weight[7] = float("nan")

    tiny = publish_tiny(tmp_path, config=qwen2(tied=False), spoil=spoil)
    one = decoder(tiny)
    give(
        one,
        [
            admission(tiny.policy, seq=0, prompt=(7, 7)),
            admission(tiny.policy, seq=1, prompt=(5, 6), temperature=0.0),
        ],
    )
    ends = outcomes(drain(one))
    assert ends[0].failure.code == "engine"
    assert "not finite" in ends[0].failure.detail


def test_a_poisoned_sample_does_not_reach_its_neighbours(tmp_path: Path) -> None:
    def spoil(model: Any) -> None:
        model.get_input_embeddings().weight[7] = float("nan")

    tiny = publish_tiny(tmp_path, config=qwen2(tied=False), spoil=spoil)
    one = decoder(tiny, replace(LIMITS, prefill_chunk=64, slots=2))
    give(one, [admission(tiny.policy, seq=0, prompt=(7, 7, 7))])
    drain(one)
    others = [
        admission(tiny.policy, seq=i, prompt=(5,), max_new=2, temperature=0.0) for i in (1, 2)
    ]
    give(one, others)
    ends = outcomes(drain(one))
    assert all(isinstance(ends[i].ends[0], EngineFinished) for i in (1, 2)), ends


def test_new_tokens_are_reported_in_batches(tiny: Tiny) -> None:
    one = decoder(tiny, replace(LIMITS, flush_tokens=8, flush_seconds=1e9))
    give(one, [admission(tiny.policy, max_new=20)])
    chunks = [event for event in drain(one) if isinstance(event, NewTokens)]
    assert [(chunk.chunk.start, len(chunk.chunk.tokens) // 4) for chunk in chunks] == [
        (0, 8),
        (8, 8),
    ]


def test_all_are_reported_when_the_time_has_come(tiny: Tiny) -> None:
    one = decoder(tiny, replace(LIMITS, flush_tokens=1000, flush_seconds=0.5))
    give(one, [admission(tiny.policy, seq=i, max_new=3) for i in range(2)])
    with torch.inference_mode():
        events = one.round()
    assert [event.dispatch.seq for event in events if isinstance(event, NewTokens)] == [0, 1]


@given(st.integers(0, 1 << 32), st.integers(1, 9))
@settings(max_examples=15, deadline=None)
def test_every_sample_ends_once_under_any_schedule(tiny: Tiny, seed: int, n: int) -> None:
    rng = Random(seed)  # noqa: S311
    one = decoder(tiny, replace(LIMITS, kv_tokens=100), using=_shared(tiny))
    todo = [
        admission(tiny.policy, seq=i, prompt=PROMPTS[i % 3], max_new=rng.randint(1, 12))
        for i in range(n)
    ]
    ended: list[int] = []
    with torch.inference_mode():
        while todo or not one.idle:
            if todo and rng.random() < 0.5:
                give(one, [todo.pop()])
            cut = one.cut(Dispatch(1, 1, rng.randint(0, 40)))
            events = [*one.round(), *([cut] if cut else [])]
            ends = (EngineFinished, EngineCut, EngineFailed)
            ended += [event.dispatch.seq for event in events if isinstance(event, ends)]
            assert one.rows.n <= one.rows.slots
            assert sum(s.reserve for s in one.rows.samples) <= 100
    assert sorted(ended) == list(range(n))


_RUNNERS: dict[str, Any] = {}


def _shared(tiny: Tiny) -> Any:
    return _RUNNERS.setdefault(tiny.policy.digest, runner(tiny))
