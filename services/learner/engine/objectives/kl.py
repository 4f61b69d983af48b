"""KL(policy || reference), estimated from the tokens that were sampled.

With g = log reference - log policy: k1 = -g, k2 = g^2 / 2, k3 = exp(g) - g - 1 (J. Schulman,
"Approximating KL divergence", 2020). k1 and k3 have the right mean; k2 has a little bias.
"""

from __future__ import annotations

import torch

from ebbtide.spec import KlSpec
from services.learner.engine.objectives.tokens import Tokens


def estimate(gap: torch.Tensor, estimator: str) -> torch.Tensor:
    """Estimates from `gap` = log reference - log policy, nats, elementwise."""
    match estimator:
        case "k1":
            return -gap
        case "k2":
            return gap * gap / 2
        case _:
            return k3(gap)


def k3(gap: torch.Tensor) -> torch.Tensor:
    """exp(gap) - gap - 1: unbiased for KL(p || q) at samples of p, gap = log q - log p >= 0."""
    return torch.expm1(gap) - gap


def kl_term(tokens: Tokens, reference: torch.Tensor, spec: KlSpec) -> torch.Tensor:
    """KL of each token as a term of the loss.

    `corrected` weighs it by the ratio (DeepSeek-V3.2, arXiv 2512.02556): differentiating plain k3
    gives the gradient of KL(reference || policy) instead, that of plain k1 has mean zero. For k2
    the weight carries no gradient, because that of k2 itself is already the KL's.
    """
    value = estimate(reference - tokens.logprobs, spec.estimator)
    if not spec.corrected:
        return value
    return value * (tokens.ratio.detach() if spec.estimator == "k2" else tokens.ratio)
