"""The proximal policy: the learner's at the start of a batch, that ratios are clipped against.

Decoupled PPO (Hilton et al., arXiv 2110.00641; AReaL, arXiv 2505.24298) has three policies. With b
the one that sampled, q the proximal and p the current one a token's loss is

    - q / b * min(p / q * A, clip(p / q) * A),    q / b without gradient and cut off above.

Before a batch's first update p is q, so what the first update computes anyway is q. Answers that are
learnt from after the first update need a forward pass of their own, or A-3PO's estimate of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ebbtide.spec import MismatchSpec, PolicyGradientSpec


@dataclass(frozen=True)
class Proximal:
    """Log-probabilities (N,) at the start of the batch: `exact`, or an estimate.

    `near`: they are those of the weights that the batch began with.
    """

    logprobs: torch.Tensor
    exact: bool = True
    near: bool = True


def interpolates(algorithm: PolicyGradientSpec) -> bool:
    """Whether the proximal policy is estimated and never computed for its own sake."""
    decoupled = algorithm.decoupled
    return decoupled is not None and decoupled.proximal == "interpolated"


def weighed(algorithm: PolicyGradientSpec) -> MismatchSpec:
    """How losses are weighed by proximal over sampling policy: by token, if these are decoupled."""
    decoupled = algorithm.decoupled
    if decoupled is None:
        return algorithm.mismatch
    by_token = {"weight": "token", "weight_max": decoupled.weight_max}
    return algorithm.mismatch.model_copy(update=by_token)


@torch.no_grad()
def interpolated(
    current: torch.Tensor, sampling: torch.Tensor, ages: torch.Tensor, *, done: int, version: int
) -> torch.Tensor:
    """A-3PO's log q, shape (N,): log-linear between b and p by age (arXiv 2512.06547).

        log q = log b + a / (a + d) * (log p - log b)

    `sampling`: log b; `ages` (N,): versions from b to q, each of `version` updates; a is that in
    updates, d = `done` those since the start of the batch. The paper counts versions, p one ahead
    of q. After no update q is p itself; a token of age 0 has b.
    """
    if done == 0:
        return current.detach().clone()
    behind = ages.to(current.dtype) * version
    return sampling + behind / (behind + done) * (current - sampling)
