"""Episodes: only what the policy drew is in the loss, in the KL and in the returns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from ebbtide.errors import Refused
from ebbtide.turns import mask_of
from ebbtide.wire import (
    Dispatch,
    PolicyRef,
    Ref,
    Rollout,
    Row,
    SampleKey,
    Span,
    Timings,
    pack_floats,
    pack_ints,
    pack_mask,
    unpack_mask,
)
from services.learner.core.samples import Sample, Weighting, pad, sample_of
from services.learner.core.sharing import Rows
from services.learner.engine.gang import Gang
from tests.unit.learner.gangs import VOCABULARY, Parts, close, lay

POLICY = PolicyRef(3, 1, "digest")
TURNS = (((0, 3), (5, 8)), ((0, 2), (4, 5), (9, 12)), ((0, 6),), ((0, 1), (7, 9)))
"""Spans of the policy's turns in each response; between them the environment speaks."""
DRAWN = sum(end - start for turns in TURNS for start, end in turns)
WEIGHTING = Weighting("token-mean", DRAWN, len(TURNS), 16)


def rollout(i: int) -> Rollout:
    rng, turns = np.random.default_rng(i), TURNS[i]
    n, spans = turns[-1][1], tuple(Span(a, b, POLICY) for a, b in turns)
    mask = mask_of(spans, n)
    return Rollout(
        key=SampleKey("job", 0, 0, i, len(turns) - 1),
        dispatch=Dispatch(1, 1, i),
        prompt_id="p",
        prompt_tokens=pack_ints([5, 6, 7]),
        tokens=pack_ints(rng.integers(0, VOCABULARY, n)),
        logprobs=pack_floats(np.where(mask, -3.9, np.nan)),
        action_mask=pack_mask(mask),
        spans=spans,
        finish="stop",
        timings=Timings(0, 0, 0),
        actor="a",
    )


def taken(whole: Rollout, i: int) -> Sample:
    row = Row(whole.key, Ref("r", "d", 1), whole.n_chosen, 1.5 if i % 2 else -0.7, 0, 0)
    return sample_of(row, whole, POLICY, WEIGHTING)


def episodes() -> list[Sample]:
    return [taken(rollout(i), i) for i in range(len(TURNS))]


def by_the_mask(model: Any, i: int) -> torch.Tensor:
    """Log-probabilities of the policy's own tokens, from a plain forward of the whole text."""
    whole = rollout(i)
    text = torch.tensor([*[5, 6, 7], *np.frombuffer(whole.tokens, "<i4").tolist()])
    scores = torch.log_softmax(model(text[None]).logits[0].float(), dim=-1)
    each = scores[:-1].gather(-1, text[1:, None])[:, 0]
    return each[2:][torch.tensor(unpack_mask(whole.action_mask)).bool()]


def on_policy(gang: Gang, model: Path, rows: list[Sample]) -> dict[str, np.ndarray]:
    """The gradient where the old log-probabilities are the policy's own."""
    parts, batches = Parts(gang, model), [pad(rows)]
    plain = AutoModelForCausalLM.from_pretrained(model)
    old = torch.cat([by_the_mask(plain, i) for i in range(len(TURNS))]).detach()
    parts.learner.gradient(batches, [old])
    return parts.gradients()


def the_formula(model: Path) -> dict[str, np.ndarray]:
    """Of the sum over drawn tokens of -advantage * log-probability / number of drawn tokens."""
    plain = AutoModelForCausalLM.from_pretrained(model)
    worth = [1.5 if i % 2 else -0.7 for i in range(len(TURNS))]
    terms = [-worth[i] * by_the_mask(plain, i).sum() / DRAWN for i in range(len(TURNS))]
    torch.stack(terms).sum().backward()
    named = plain.named_parameters()
    return {name: p.grad.numpy() for name, p in named if p.grad is not None}


def test_the_gradient_is_that_of_the_policys_own_tokens(gang: Gang, model: Path) -> None:
    assert close(the_formula(model), on_policy(gang, model, episodes()), limit=1e-4)


@pytest.mark.parametrize("by", [-1, 1])
def test_a_mask_that_is_off_by_one_has_another_gradient(gang: Gang, model: Path, by: int) -> None:
    off = [replace(s, chosen=np.clip(s.chosen + by, 1, len(s.tokens) - 1)) for s in episodes()]
    assert not close(the_formula(model), on_policy(gang, model, off), limit=1e-2)


@pytest.mark.parametrize("by", [-1, 1])
def test_a_mask_that_is_off_by_one_is_refused(by: int) -> None:
    whole = rollout(0)
    mask = np.roll(unpack_mask(whole.action_mask), by)
    with pytest.raises(Refused, match="disagrees with the spans"):
        taken(msgspec.structs.replace(whole, action_mask=pack_mask(mask)), 0)


def test_a_mask_and_spans_that_are_off_by_one_alike_are_refused() -> None:
    whole = rollout(0)
    spans = (Span(0, 3, POLICY), Span(4, 7, POLICY))
    moved = msgspec.structs.replace(whole, spans=spans, action_mask=pack_mask(mask_of(spans, 8)))
    with pytest.raises(Refused, match="no log-probability"):
        taken(moved, 0)


def test_the_kl_is_over_the_policys_own_tokens(gang: Gang, model: Path) -> None:
    parts = Parts(gang, model, algorithm={"kl_coefficient": 0.1})
    parts.learner.learn(lay(episodes()))
    moved = AutoModelForCausalLM.from_pretrained(model)
    moved.load_state_dict({n: torch.from_numpy(p) for n, p in parts.parameters().items()}, False)
    stats = parts.learner.learn(lay(episodes()))
    before = AutoModelForCausalLM.from_pretrained(model)
    with torch.no_grad():
        gaps = [by_the_mask(before, i) - by_the_mask(moved, i) for i in range(len(TURNS))]
    wanted = (torch.expm1(torch.cat(gaps)) - torch.cat(gaps)).mean()
    assert stats["kl"] == pytest.approx(float(wanted), rel=1e-3)


OPTIONS: tuple[dict[str, Any], ...] = (
    {"type": "ppo", "kl_coefficient": 0.5, "kl": {"place": "reward", "estimator": "k1"}},
    {"type": "grpo", "kl_coefficient": 0.1, "entropy_coefficient": 0.1},
    {"type": "gspo"},
)


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options["type"])
def test_rows_that_share_their_prompt_give_episodes_the_same_numbers(
    gang: Gang, model: Path, options: dict[str, Any]
) -> None:
    shared = [Rows(hidden=1 << 20, share=True, fill=True).of(episodes())]
    figures = [
        Parts(gang, model, algorithm=options).learner.learn(b) for b in (lay(episodes()), shared)
    ]
    names = [n for n in ("loss", "kl", "entropy", "value_loss", "ratio_max") if n in figures[0]]
    assert len(names) >= 4
    assert {n: figures[1][n] for n in names} == pytest.approx(
        {n: figures[0][n] for n in names}, rel=1e-3
    )


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options["type"])
def test_what_is_recorded_of_given_tokens_changes_nothing(
    gang: Gang, model: Path, options: dict[str, Any]
) -> None:
    rows = [taken(_with_noise(rollout(i)), i) for i in range(len(TURNS))]
    one, other = (Parts(gang, model, algorithm=options) for _ in range(2))
    stats = one.learner.learn(lay(episodes()))
    assert other.learner.learn(lay(rows)) == stats
    assert all(np.isfinite(value) for value in stats.values())


def _with_noise(whole: Rollout) -> Rollout:
    """Numbers in place of NaN at given tokens."""
    found = np.frombuffer(whole.logprobs, "<f4")
    return msgspec.structs.replace(whole, logprobs=pack_floats(np.nan_to_num(found, nan=99.0)))
