"""Laws of the update: what it must equal, whatever the layout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers.models.qwen2.modeling_qwen2 import Qwen2MLP

from services.learner.core.samples import pad
from services.learner.core.slices import my_batches
from services.learner.engine.gang import Gang
from services.learner.engine.sft import Sft
from services.learner.engine.updates import on_device
from tests.unit.learner.gangs import Parts, close, lay, run_ranks, samples

KINDS = ("grpo", "dapo", "gspo", "cispo", "rloo", "reinforce-plus-plus", "ppo")
AGGREGATIONS = ("token-mean", "sequence-mean", "dr-grpo")
IN_LOSS: dict[str, Any] = {"kl_coefficient": 0.1}
IN_REWARD: dict[str, Any] = {"kl_coefficient": 0.5, "kl": {"place": "reward", "estimator": "k1"}}
OPTIONS: tuple[dict[str, Any], ...] = (
    {"type": "gspo", "clip_low": 0.2, "clip_high": 0.2},
    {"type": "cispo", "mismatch": {"weight": "sequence", "reject": "geometric"}},
    {"type": "rloo", **IN_REWARD},
    {"type": "reinforce-plus-plus", **IN_REWARD},
    {"type": "ppo", **IN_REWARD},
    {"type": "grpo", "entropy_coefficient": 0.1, **IN_REWARD},
)


def gradient_of(
    gang: Gang,
    model: Path,
    *,
    limit: int,
    aggregation: str = "sequence-mean",
    algorithm: dict[str, Any] = IN_LOSS,
) -> dict[str, np.ndarray]:
    parts = Parts(gang, model, algorithm=algorithm)
    batches = lay(samples(24, aggregation=aggregation), limit=limit)
    parts.learner.gradient(batches, [torch.from_numpy(b.rollout) for b in batches])
    return parts.gradients()


@pytest.mark.parametrize("aggregation", AGGREGATIONS)
def test_micro_batch_size_does_not_change_the_gradient(
    gang: Gang, model: Path, aggregation: str
) -> None:
    whole = gradient_of(gang, model, limit=10_000, aggregation=aggregation)
    for limit in (1, 40, 200):
        assert close(whole, gradient_of(gang, model, limit=limit, aggregation=aggregation))


@pytest.mark.parametrize("options", OPTIONS, ids=lambda options: options["type"])
def test_micro_batch_size_changes_the_gradient_of_no_algorithm(
    gang: Gang, model: Path, options: dict[str, Any]
) -> None:
    whole = gradient_of(gang, model, limit=10_000, algorithm=options)
    assert close(whole, gradient_of(gang, model, limit=40, algorithm=options))


def test_the_entropy_bonus_has_the_gradient_of_the_entropy(gang: Gang, model: Path) -> None:
    plain, bonus = (
        gradient_of(gang, model, limit=10_000, algorithm={"entropy_coefficient": c})
        for c in (0.0, 0.5)
    )
    parts = Parts(gang, model)
    batch = on_device(pad(samples(24, aggregation="sequence-mean")), gang.device)
    scored = parts.policy.score(
        batch.tokens, batch.where, batch.targets, temperature=1.0, explore=True
    )
    (-0.5 * (scored.entropy * batch.weights).sum()).backward()
    assert close(bonus, {n: plain[n] + g for n, g in parts.gradients().items()}, limit=1e-4)


def learn(
    gang: Gang,
    model: str,
    limit: int,
    layered: bool = False,
    algorithm: dict[str, Any] | None = None,
) -> dict[str, np.ndarray]:
    options = algorithm or {"kl_coefficient": 0.05}
    parts = Parts(gang, Path(model), algorithm=options, layered=layered)
    for step in range(3):
        rows = [replace(s, group=i // 4) for i, s in enumerate(samples(23, seed=step))]
        parts.learner.learn(lay(rows, rank=gang.rank, ranks=gang.size, limit=limit))
    return parts.parameters()


@pytest.mark.parametrize("options", OPTIONS[2:5], ids=lambda options: options["type"])
def test_advantages_over_the_batch_are_those_of_all_ranks(
    gang: Gang, model: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    one = learn(gang, str(model), 64, algorithm=options)
    assert close(one, run_ranks(2, learn, tmp_path, str(model), 64, False, options)[0])


def test_the_same_batch_and_state_give_bit_identical_parameters(gang: Gang, model: Path) -> None:
    first, second = learn(gang, str(model), 64), learn(gang, str(model), 64)
    assert all(np.array_equal(first[name], second[name]) for name in first)


def figures(gang: Gang, model: str, limit: int) -> dict[str, float]:
    passes = {"updates_per_batch": 3, "learning_rate": 0.05}
    parts = Parts(gang, Path(model), training=passes)
    return parts.learner.learn(lay(samples(23), rank=gang.rank, ranks=gang.size, limit=limit))


def test_the_figures_of_an_update_are_over_the_tokens_of_all_ranks(
    gang: Gang, model: Path, tmp_path: Path
) -> None:
    one = figures(gang, str(model), 64)
    each = np.repeat([s.advantage for s in samples(23)], [len(s.chosen) for s in samples(23)])
    assert one["advantage_std"] == pytest.approx(each.std())
    assert one["ratio_p01"] < one["ratio_p50"] < one["ratio_p99"] <= one["ratio_max"] * 1.002
    two = run_ranks(2, figures, tmp_path, str(model), 64)
    names = ("advantage_std", "ratio_p01", "ratio_p99", "repeated_ngrams")
    assert {n: two[1][n] for n in names} == pytest.approx({n: one[n] for n in names}, rel=5e-3)


@pytest.mark.parametrize("layered", [False, True])
def test_two_ranks_equal_one(gang: Gang, model: Path, tmp_path: Path, layered: bool) -> None:
    one = learn(gang, str(model), 64)
    two, other = run_ranks(2, learn, tmp_path, str(model), 64, layered)
    assert close(one, two)
    assert all(np.array_equal(two[name], other[name]) for name in two)


def test_a_rank_without_rows_joins_with_a_dummy(gang: Gang, model: Path, tmp_path: Path) -> None:
    one = run_ranks(2, learn_one_row, tmp_path, str(model))
    assert close(one[0], learn_one_row(gang, str(model)))


def learn_one_row(gang: Gang, model: str) -> dict[str, np.ndarray]:
    parts = Parts(gang, Path(model))
    parts.learner.learn(lay(samples(1), rank=gang.rank, ranks=gang.size))
    return parts.parameters()


@pytest.mark.parametrize("kind", KINDS)
def test_with_one_update_per_batch_the_ratio_is_exactly_one(
    gang: Gang, model: Path, kind: str
) -> None:
    stats = Parts(gang, model, algorithm={"type": kind}).learner.learn(lay(samples(12)))
    assert stats["ratio_max"] == 1.0
    assert stats["clip_fraction_low"] == stats["clip_fraction_high"] == 0.0


def test_further_updates_move_the_ratio_from_the_first_ones_policy(gang: Gang, model: Path) -> None:
    stats = Parts(gang, model, training={"updates_per_batch": 3}).learner.learn(lay(samples(12)))
    assert stats["ratio_max"] > 1.01
    assert stats["clip_fraction_high"] > 0.0


def test_advantages_raise_and_lower_probabilities(gang: Gang, model: Path) -> None:
    parts = Parts(gang, model, training={"learning_rate": 1e-3})
    batches = lay(samples(12), limit=10_000)
    gains = []
    for _ in range(2):
        batch = batches[0]
        scored = parts.policy.score(
            torch.from_numpy(batch.tokens),
            torch.from_numpy(batch.where),
            torch.from_numpy(batch.targets),
            temperature=1.0,
        )
        gains.append(float((scored.logprobs * torch.from_numpy(batch.advantages)).sum().detach()))
        parts.learner.learn(batches)
    assert gains[1] > gains[0]


def test_a_non_finite_gradient_is_skipped_and_counted(gang: Gang, model: Path) -> None:
    parts = Parts(gang, model)
    before = parts.parameters()
    [batch] = lay(samples(4), limit=10_000)
    batch.advantages[0] = np.nan
    assert parts.learner.learn([batch])["skipped_updates"] == 1.0
    assert parts.optimiser.skipped == 1
    assert all(np.array_equal(before[name], p) for name, p in parts.parameters().items())
    assert parts.learner.learn(lay(samples(4)))["skipped_updates"] == 0.0


def supervise(gang: Gang, model: str) -> dict[str, np.ndarray]:
    parts = Parts(gang, Path(model))
    sft = Sft(gang=gang, policy=parts.policy, optimiser=parts.optimiser)
    updates = [samples(7, seed=n) for n in range(3)]
    sft.learn([my_batches(u, rank=gang.rank, ranks=gang.size, limit=40) for u in updates])
    return parts.parameters()


def test_supervision_on_two_ranks_equals_one(gang: Gang, model: Path, tmp_path: Path) -> None:
    two = run_ranks(2, supervise, tmp_path, str(model))
    assert close(supervise(gang, str(model)), two[1])


def poisoned(gang: Gang, model: str) -> tuple[int, bool]:
    parts = Parts(gang, Path(model))
    before = parts.parameters()
    batches = lay(samples(8), rank=gang.rank, ranks=2, limit=10_000)
    if gang.rank == 1:
        batches[0].advantages[0] = np.inf
    parts.learner.learn(batches)
    after = parts.parameters()
    return parts.optimiser.skipped, all(np.array_equal(before[n], after[n]) for n in before)


def test_all_ranks_skip_when_one_has_a_non_finite_loss(model: Path, tmp_path: Path) -> None:
    assert run_ranks(2, poisoned, tmp_path, str(model)) == [(1, True), (1, True)]


def test_log_probabilities_are_after_temperature(gang: Gang, model: Path) -> None:
    parts = Parts(gang, model)
    batch = pad(samples(3))
    arrays = (torch.from_numpy(a) for a in (batch.tokens, batch.where, batch.targets))
    tokens, where, targets = arrays
    scored = parts.policy.score(tokens, where, targets, temperature=0.6)
    parts.policy._where = torch.arange(tokens.numel())
    logits = parts.policy.module(input_ids=tokens).logits[0].detach()
    expected = torch.log_softmax(logits / 0.6, -1)[where, targets]
    assert torch.allclose(scored.logprobs.detach(), expected, atol=1e-5)
    entropy = torch.distributions.Categorical(logits=logits[where] / 0.6).entropy()
    assert torch.allclose(scored.entropy, entropy, atol=1e-4)


def test_padding_does_not_change_a_log_probability(gang: Gang, model: Path) -> None:
    parts = Parts(gang, model)
    rows = samples(6)
    together = _score(parts, rows)
    alone = torch.cat([_score(parts, [row]) for row in rows])
    assert torch.allclose(together, alone, atol=1e-5)


def _score(parts: Parts, rows: list) -> torch.Tensor:
    batch = pad(rows)
    arrays = (torch.from_numpy(a) for a in (batch.tokens, batch.where, batch.targets))
    return parts.policy.score(*arrays, temperature=1.0).logprobs.detach()


@pytest.mark.parametrize("layered", [False, True])
def test_layers_computed_again_give_the_same_gradient(
    gang: Gang, model: Path, monkeypatch: pytest.MonkeyPatch, layered: bool
) -> None:
    kept = Parts(gang, model, layered=layered)
    again = Parts(gang, model, layered=layered, checkpointing=True)
    calls: list[int] = []
    monkeypatch.setattr(Qwen2MLP, "forward", _counting(Qwen2MLP.forward, calls))
    found = []
    for parts in (kept, again):
        batches = lay(samples(12), limit=10_000)
        parts.learner.gradient(batches, [torch.from_numpy(b.rollout) for b in batches])
        found.append((parts.gradients(), len(calls)))
    assert close(found[0][0], found[1][0])
    assert found[1][1] == 3 * found[0][1], "once forward, and once more in the backward pass"


def _counting(forward: Any, calls: list[int]) -> Any:
    def counted(*arguments: Any) -> Any:
        calls.append(1)
        return forward(*arguments)

    return counted


def test_the_kl_coefficient_follows_its_target(gang: Gang, model: Path) -> None:
    options = {"kl_coefficient": 0.1, "kl": {"target": 1e-9}}
    parts = Parts(gang, model, algorithm=options, training={"updates_per_batch": 3})
    first, second = (parts.learner.learn(lay(samples(12))) for _ in range(2))
    assert first["kl_coefficient"] == 0.1
    assert second["kl_coefficient"] == pytest.approx(0.102)


def test_a_rejected_sample_moves_nothing_and_is_counted(gang: Gang, model: Path) -> None:
    keep_none = {"mismatch": {"reject": "token", "reject_low": 1.0, "reject_high": 1.0}}
    parts = Parts(gang, model, algorithm=keep_none)
    stats = parts.learner.learn(lay(samples(8)))
    assert stats["rejected_fraction"] == 1.0
    assert stats["loss"] == stats["grad_norm"] == 0.0
    assert stats["mismatch_alarm"] == 1.0


def test_the_mismatch_is_measured_against_the_engines_record(gang: Gang, model: Path) -> None:
    parts = Parts(gang, model, training={"learning_rate": 0.0})
    [batch] = lay(samples(8), limit=10_000)
    batch.rollout[:] = _score(parts, samples(8)).numpy()
    same = parts.learner.learn([batch])
    assert same["mismatch_kl"] < 1e-6
    assert same["mismatch_correlation"] > 0.999
    assert same["mismatch_ess"] > 0.999
    batch.rollout[0] -= 3.0
    off = parts.learner.learn([batch])
    assert off["mismatch_ratio_max"] == pytest.approx(np.exp(3.0), rel=1e-3)
    assert off["mismatch_ess"] < 0.9
