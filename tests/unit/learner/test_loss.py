"""The loss per token, on numbers that can be worked out."""

from __future__ import annotations

import pytest
import torch

from services.learner.engine.loss import Clip, grpo_terms, k3

CLIP = Clip(low=0.2, high=0.3)


def policy_loss(ratio: float, advantage: float) -> tuple[float, float]:
    """Loss of one token, and its gradient by the log-probability."""
    logprob = torch.tensor([ratio]).log().requires_grad_()
    terms = grpo_terms(logprob, torch.zeros(1), torch.tensor([advantage]), None, CLIP)
    terms.policy.sum().backward()
    assert logprob.grad is not None
    return float(terms.policy.detach()), float(logprob.grad)


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
    assert policy_loss(ratio, advantage) == pytest.approx((loss, gradient), abs=1e-6)


def test_k3_is_never_negative_and_zero_only_at_equality() -> None:
    gaps = torch.linspace(-3, 3, 13)
    assert (k3(gaps) >= 0).all()
    assert k3(torch.zeros(1)) == 0


def test_the_kl_term_has_the_value_and_the_gradient_of_the_reverse_kl() -> None:
    """Expectation over a whole vocabulary, so nothing is left to chance."""
    torch.manual_seed(0)
    logits = torch.randn(7, dtype=torch.float64, requires_grad=True)
    reference = torch.log_softmax(torch.randn(7, dtype=torch.float64), -1)
    policy = torch.log_softmax(logits, -1)
    exact = (policy.exp() * (policy - reference)).sum()
    [wanted] = torch.autograd.grad(exact, logits, retain_graph=True)
    terms = grpo_terms(policy, policy.detach(), torch.zeros(7), reference, CLIP)
    assert terms.kl is not None
    expected = (policy.detach().exp() * terms.kl).sum()
    [found] = torch.autograd.grad(expected, logits)
    assert torch.allclose(expected, exact)
    assert torch.allclose(found, wanted)
