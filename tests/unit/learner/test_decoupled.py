"""Decoupled clipping: sampling, proximal and current policy, and the age of answers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ebbtide.testing.blobs import FakeBlobs
from ebbtide.wire import Learned, Refusal
from services.learner.core.samples import MicroBatch, Sample, pad
from services.learner.engine.gang import Gang
from services.learner.engine.proximal import interpolated
from services.learner.engine.updates import on_device
from tests.unit.learner.builders import a_batch, a_rank, job_spec
from tests.unit.learner.gangs import Parts, close, lay, run_ranks, samples

KINDS = ("recomputed", "interpolated")
CURRENT = torch.tensor([-1.0, -1.0, -1.0, -2.0])
SAMPLING = torch.tensor([-3.0, -3.0, -3.0, -2.0])
AGES = torch.tensor([0, 1, 3, 7])


def decoupled(proximal: str = "recomputed", **options: Any) -> dict[str, Any]:
    return {"decoupled": {"proximal": proximal, **options}}


def test_the_estimate_lies_between_both_policies_by_age() -> None:
    found = interpolated(CURRENT, SAMPLING, AGES, done=2, version=2)
    assert found.tolist() == [-3.0, -2.0, -1.5, -2.0]


def test_counted_in_versions_the_estimate_is_the_papers() -> None:
    """Which weighs the sampling policy by 1 / d, d the versions from it to the current one."""
    found = interpolated(CURRENT, SAMPLING, AGES, done=4, version=4)
    alpha = 1.0 / (AGES + 1)
    assert torch.allclose(found, alpha * SAMPLING + (1 - alpha) * CURRENT)


def test_before_the_first_update_the_estimate_is_the_current_policy_bit_for_bit() -> None:
    current = torch.rand(100).log()
    found = interpolated(current, torch.rand(100).log(), torch.arange(100), done=0, version=1)
    assert torch.equal(found, current)


def scored(parts: Parts, batch: MicroBatch) -> torch.Tensor:
    put = on_device(batch, parts.gang.device)
    return parts.policy.score(put.tokens, put.where, put.targets, temperature=1.0).logprobs.detach()


def drawn_by_itself(parts: Parts, batches: list[MicroBatch]) -> list[MicroBatch]:
    """As if the engine had the learner's very log-probabilities."""
    return [replace(batch, rollout=scored(parts, batch).numpy()) for batch in batches]


def aged(rows: list[Sample], age: int) -> list[Sample]:
    return [replace(row, ages=np.full(len(row.chosen), age)) for row in rows]


@pytest.mark.parametrize("weight_max", [1.5, 1e6])
def test_the_loss_is_the_papers(gang: Gang, model: Path, weight_max: float) -> None:
    """Policy over proximal is clipped, proximal over sampling weighs: three different policies."""
    parts = Parts(gang, model, algorithm=decoupled(weight_max=weight_max))
    [batch] = lay(samples(12), limit=10_000)
    current, sampling = scored(parts, batch), torch.from_numpy(batch.rollout)
    proximal = current + 0.4 * torch.sin(torch.arange(len(current)))
    advantages, weights = (torch.from_numpy(of) for of in (batch.advantages, batch.weights))
    ratio, weight = (current - proximal).exp(), (proximal - sampling).exp().clamp(max=weight_max)
    assert weight.max() > 1.4
    assert not torch.allclose(ratio, ratio.clamp(0.8, 1.2))
    gain = torch.minimum(ratio * advantages, ratio.clamp(0.8, 1.2) * advantages)
    expected = float(-(weights * weight * gain).sum())
    assert parts.learner.gradient([batch], [proximal]) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_one_update_on_policy_is_plain_grpos(gang: Gang, model: Path, kind: str) -> None:
    plain, apart = Parts(gang, model), Parts(gang, model, algorithm=decoupled(kind))
    batches = drawn_by_itself(plain, lay(samples(12)))
    wanted, found = plain.learner.learn(batches), apart.learner.learn(batches)
    assert found["ratio_max"] == found["correction_weight"] == 1.0
    assert found["loss"] == wanted["loss"]
    assert all(np.array_equal(p, plain.parameters()[n]) for n, p in apart.parameters().items())


@pytest.mark.parametrize("kind", KINDS)
def test_stale_answers_are_weighed_and_not_clipped_before_the_first_update(
    gang: Gang, model: Path, kind: str
) -> None:
    parts = Parts(gang, model, algorithm=decoupled(kind))
    batches = drawn_by_itself(parts, lay(aged(samples(12), 2)))
    half = [replace(b, rollout=b.rollout + np.float32(np.log(2.0))) for b in batches]
    found = parts.learner.learn(half)
    assert found["ratio_max"] == 1.0
    assert found["correction_weight"] == pytest.approx(0.5, rel=1e-5)


def test_figures_say_which_proximal_policy_and_how_old_the_answers_are(
    gang: Gang, model: Path
) -> None:
    rows = [*aged(samples(12)[:6], 3), *samples(12)[6:]]
    tokens = [len(row.chosen) for row in rows]
    old = sum(tokens[:6]) / sum(tokens)
    for kind, other in (KINDS, KINDS[::-1]):
        found = Parts(gang, model, algorithm=decoupled(kind)).learner.learn(lay(rows))
        assert found[f"proximal_{kind}"] == 1.0
        assert f"proximal_{other}" not in found
        assert found["stale_fraction"] == pytest.approx(old)
        assert found["age_mean"] == pytest.approx(3 * old)


def test_the_mismatch_is_that_of_answers_of_the_same_weights(gang: Gang, model: Path) -> None:
    parts = Parts(gang, model, algorithm=decoupled(), training={"learning_rate": 0.0})
    fresh = drawn_by_itself(parts, lay(samples(6)))
    assert parts.learner.learn(fresh)["mismatch_alarm"] == 0.0
    both = [*fresh, *lay(aged(samples(6, seed=1), 1))]
    found = parts.learner.learn(both)
    assert found["mismatch_alarm"] == 0.0
    assert found["mismatch_kl"] < 1e-6
    assert found["mismatch_ess"] > 0.99


def ratios(gang: Gang, model: Path, kind: str, *, age: int = 0) -> tuple[dict[str, float], int]:
    """Figures of two passes over two mini-batches, and how many forward passes they took."""
    passes = {"mini_batches": 2, "updates_per_batch": 2}
    parts = Parts(gang, model, algorithm=decoupled(kind), training=passes)
    batches = drawn_by_itself(parts, lay(aged(samples(12), age), limit=10_000))
    calls: list[int] = []
    parts.policy.module.register_forward_pre_hook(lambda *_: calls.append(1))
    return parts.learner.learn([*batches, *batches]), len(calls)


def test_the_estimate_is_exact_where_the_sampling_policy_is_the_proximal(
    gang: Gang, model: Path
) -> None:
    (exact, passes), (estimated, fewer) = (ratios(gang, model, kind) for kind in KINDS)
    assert (passes, fewer) == (5, 4), "one forward pass less"
    assert exact["ratio_max"] > 1.1
    for name in ("ratio_max", "loss", "clip_fraction_high", "correction_weight"):
        assert estimated[name] == pytest.approx(exact[name], rel=1e-4), name


def test_the_older_the_answers_the_nearer_the_estimate_to_the_current_policy(
    gang: Gang, model: Path
) -> None:
    found = [ratios(gang, model, "interpolated", age=age)[0]["ratio_max"] for age in (0, 1, 8)]
    assert found[0] > found[1] > found[2] > 1.0


def test_a_mini_batch_without_answers_updates_nothing(gang: Gang, model: Path) -> None:
    parts = Parts(gang, model, training={"mini_batches": 2})
    parts.learner.learn([*lay(samples(6), limit=10_000), pad([])])
    alone = Parts(gang, model)
    halved = [replace(batch, weights=2 * batch.weights) for batch in lay(samples(6), limit=10_000)]
    alone.learner.learn(halved)
    assert (parts.optimiser.updates, alone.optimiser.updates) == (1, 1)
    wanted = alone.parameters()
    assert all(np.array_equal(p, wanted[n]) for n, p in parts.parameters().items())


def test_mini_batches_make_up_the_batch(gang: Gang, model: Path) -> None:
    whole = Parts(gang, model, training={"learning_rate": 0.0})
    split = Parts(gang, model, training={"learning_rate": 0.0, "mini_batches": 2})
    rows = [replace(row, weight=row.weight / 2) for row in samples(12)]
    twice = [*lay(rows, limit=10_000), *lay(rows, limit=10_000)]
    wanted, found = whole.learner.learn(twice), split.learner.learn(twice)
    assert (whole.optimiser.updates, split.optimiser.updates) == (1, 2)
    for name in ("loss", "grad_norm", "entropy", "computed_tokens", "advantage_std"):
        assert found[name] == pytest.approx(wanted[name], rel=1e-5), name


def moved_by_the_first(gang: Gang, model: Path, **algorithm: Any) -> tuple[float, float]:
    """Ratio that the update of one mini-batch gives the next, and what the learner says of it.

    All answers are of the version before, as the learner's own policy would have drawn them.
    """
    parts = Parts(gang, model, training={"mini_batches": 2}, algorithm=algorithm)
    laid = (lay(aged(samples(n, seed=n), 1), limit=10_000)[0] for n in (12, 9))
    first, second = drawn_by_itself(parts, list(laid))
    alone = Parts(gang, model)
    alone.learner.learn([replace(first, weights=2 * first.weights)])
    gap = scored(alone, second) - torch.from_numpy(second.rollout)
    return float(gap.max().exp()), parts.learner.learn([first, second])["ratio_max"]


def test_later_mini_batches_are_clipped_against_the_policy_before_the_first(
    gang: Gang, model: Path
) -> None:
    moved, found = moved_by_the_first(gang, model)
    assert moved > 1.01
    assert found == pytest.approx(moved, rel=1e-4)


def test_an_answers_age_counts_the_updates_of_a_version(gang: Gang, model: Path) -> None:
    """Two updates old and one further: the proximal policy lies at two thirds of the way."""
    moved, found = moved_by_the_first(gang, model, **decoupled("interpolated"))
    assert found == pytest.approx(moved ** (1 / 3), rel=1e-4)


def learn_in_parts(gang: Gang, model: str) -> dict[str, np.ndarray]:
    options = {"mini_batches": 3, "updates_per_batch": 2}
    parts = Parts(gang, Path(model), training=options, algorithm={"kl_coefficient": 0.05})
    batches = lay(samples(23), rank=gang.rank, ranks=gang.size, limit=24)
    parts.learner.learn(batches)
    return parts.parameters()


def test_ranks_agree_after_mini_batches(model: Path, tmp_path: Path) -> None:
    one, other = run_ranks(2, learn_in_parts, tmp_path, str(model))
    assert close(one, other, limit=0.0)


async def test_answers_of_an_older_policy_are_taken_where_the_job_allows_it(
    gang: Gang, model: Path, tmp_path: Path
) -> None:
    blobs = FakeBlobs(folder=tmp_path / "local")
    spec = job_spec(model, algorithm={"type": "grpo", **decoupled(max_age=1)}, mini_batches=7)
    rank = a_rank(gang, spec, blobs, tmp_path)
    await rank.start(None)
    assert rank.progress.policy is not None
    policies = [rank.progress.policy]
    for step in range(2):
        command = await a_batch(blobs, policies[-1], step=step, drawn_from=policies[0])
        outcome = await rank.obey(command)
        assert isinstance(outcome, Learned), outcome
        policies.append(outcome.policy)
        assert {s.name: s.value for s in outcome.stats}["age_mean"] == float(step)
    older = await rank.obey(await a_batch(blobs, policies[-1], step=2, drawn_from=policies[0]))
    assert isinstance(older, Refusal)
    assert "taken are 1 versions before it" in older.detail
