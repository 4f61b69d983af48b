"""Losses per token, on numbers that can be worked out or against their formula written whole."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from ebbtide.spec import KlSpec
from services.learner.engine.objectives import Cispo, Clip, Clipped, Gspo, Objective, Rloo
from services.learner.engine.objectives.kl import estimate, k3, kl_term
from services.learner.engine.objectives.tokens import Tokens, in_rows, sums

CLIP = Clip(low=0.2, high=0.3)
COUNTS = (3, 1, 4)
NARROW = {Gspo: Clip(0.05, 0.05), Rloo: Clip(0.3, 0.3)}


def token_loss(objective: Objective, ratio: float, advantage: float) -> tuple[float, float]:
    """Loss of one token, and its gradient by the log-probability."""
    logprob = torch.tensor([ratio]).log().requires_grad_()
    found = objective(tokens_of(logprob, torch.zeros(1), [advantage], (1,)))
    found.losses.sum().backward()
    assert logprob.grad is not None
    return float(found.losses.detach()), float(logprob.grad)


def tokens_of(
    logprobs: torch.Tensor, old: torch.Tensor, advantages: list, counts: tuple[int, ...]
) -> Tokens:
    each = torch.tensor(counts)
    values = torch.tensor(advantages, dtype=logprobs.dtype).repeat_interleave(each)
    return Tokens(logprobs, old, values, each)


def drawn() -> Tokens:
    """Three answers whose ratios lie on both sides of the bounds."""
    torch.manual_seed(3)
    old = -torch.rand(sum(COUNTS), dtype=torch.float64) - 0.1
    noise = torch.tensor([0.2, 0.1, 0.1, -0.5, 0.01, -0.02, 0.02, 0.0], dtype=torch.float64)
    return tokens_of((old + noise).requires_grad_(), old, [1.0, -2.0, 0.5], COUNTS)


@pytest.mark.parametrize(
    ("ratio", "advantage", "loss", "gradient"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.5, 2.0, -2.6, 0.0),  # above 1.3 a good token gains nothing more
        (0.5, 2.0, -1.0, -1.0),
        (0.5, -2.0, 1.6, 0.0),  # below 0.8 a bad one is punished no further
        (1.5, -2.0, 3.0, 3.0),
    ],
)
def test_the_ratio_is_clipped_on_the_side_that_the_advantage_pushes_to(
    ratio: float, advantage: float, loss: float, gradient: float
) -> None:
    for objective in (Clipped(CLIP), Gspo(CLIP), Rloo(CLIP)):
        found = token_loss(objective, ratio, advantage)
        assert found == pytest.approx((loss, gradient), abs=1e-6)


def whole_answers(tokens: Tokens, clip: Clip, *, mean: bool) -> torch.Tensor:
    """Mean over answers of the clipped surrogate with one ratio each, as the papers write it."""
    gaps = (tokens.logprobs - tokens.old).split(COUNTS)
    ratio = torch.stack([gap.mean() if mean else gap.sum() for gap in gaps]).exp()
    advantages = torch.stack([a[0] for a in tokens.advantages.split(COUNTS)])
    bounded = ratio.clamp(1 - clip.low, 1 + clip.high)
    return -torch.minimum(ratio * advantages, bounded * advantages).mean()


@pytest.mark.parametrize("kind", [Gspo, Rloo])
def test_ratios_of_whole_answers_have_the_papers_loss_and_gradient(kind: type[Gspo | Rloo]) -> None:
    tokens, clip = drawn(), NARROW[kind]
    assert (kind(clip)(tokens).low | kind(clip)(tokens).high).any(), "nothing is clipped"
    weights = 1.0 / (len(COUNTS) * tokens.counts.repeat_interleave(tokens.counts))
    ours = (kind(clip)(tokens).losses * weights).sum()
    papers = whole_answers(tokens, clip, mean=kind is Gspo)
    [found], [wanted] = (torch.autograd.grad(x, tokens.logprobs) for x in (ours, papers))
    assert torch.allclose(ours, papers)
    assert torch.allclose(found, wanted)


@pytest.mark.parametrize(("ratio", "weight"), [(0.01, 0.01), (1.0, 1.0), (9.0, 5.0)])
def test_cispo_cuts_the_weight_and_never_the_gradient(ratio: float, weight: float) -> None:
    for advantage in (2.0, -2.0):
        _, gradient = token_loss(Cispo(4.0), ratio, advantage)
        assert gradient == pytest.approx(-weight * advantage, rel=1e-5)


def test_sums_over_sequences_reach_each_of_their_tokens() -> None:
    counts = torch.tensor([2, 0, 3])
    values = torch.tensor([1.0, 2.0, 4.0, 8.0, 16.0])
    assert sums(values, counts).tolist() == [3.0, 3.0, 28.0, 28.0, 28.0]
    rows, inside = in_rows(values, counts)
    assert rows.tolist() == [[1.0, 2.0, 0.0], [0.0, 0.0, 0.0], [4.0, 8.0, 16.0]]
    assert torch.equal(rows[inside], values)


def test_k3_is_never_negative_and_zero_only_at_equality() -> None:
    gaps = torch.linspace(-3, 3, 13)
    assert (k3(gaps) >= 0).all()
    assert k3(torch.zeros(1)) == 0


def over_a_vocabulary(spec: KlSpec) -> tuple[torch.Tensor, ...]:
    """KL and its expected estimate, and the gradients of both: nothing is left to chance."""
    torch.manual_seed(0)
    logits = torch.randn(7, dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.randn(7, dtype=torch.float64), -1)
    policy = torch.log_softmax(logits, -1)
    exact = (policy.exp() * (policy - reference)).sum()
    [wanted] = torch.autograd.grad(exact, logits, retain_graph=True)
    tokens = tokens_of(policy, policy.detach(), [0.0], (7,))
    expected = (policy.detach().exp() * kl_term(tokens, reference, spec)).sum()
    [found] = torch.autograd.grad(expected, logits)
    return exact, expected, wanted, found


@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_a_corrected_kl_term_has_the_gradient_of_the_reverse_kl(
    estimator: Literal["k1", "k2", "k3"],
) -> None:
    exact, expected, wanted, found = over_a_vocabulary(KlSpec(estimator=estimator))
    assert torch.allclose(found, wanted)
    assert estimator == "k2" or torch.allclose(expected, exact)


def test_an_uncorrected_k3_has_another_gradient() -> None:
    exact, expected, wanted, found = over_a_vocabulary(KlSpec(corrected=False))
    assert torch.allclose(expected, exact)
    assert not torch.allclose(found, wanted, rtol=0.1)


def test_estimators_agree_where_policies_are_near() -> None:
    gaps = torch.tensor([1e-3, -1e-3], dtype=torch.float64)
    assert estimate(gaps, "k1").tolist() == [-1e-3, 1e-3]
    assert torch.allclose(estimate(gaps, "k2"), estimate(gaps, "k3"), rtol=1e-2)
