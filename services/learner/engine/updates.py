"""One pass of gradients over micro-batches, shared by GRPO and supervised work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from services.learner.core.samples import MicroBatch
from services.learner.engine.policy import Policy, Scored, Shared, tree_mask


@dataclass(frozen=True)
class Batch:
    """A MicroBatch as tensors on the device, same fields. `shared`: how shared rows are read."""

    tokens: torch.Tensor
    where: torch.Tensor
    targets: torch.Tensor
    rollout: torch.Tensor
    advantages: torch.Tensor
    weights: torch.Tensor
    real: bool
    shared: Shared | None = None


def on_device(batch: MicroBatch, device: torch.device) -> Batch:
    """Copy `batch` to `device`."""

    def put(array: object) -> torch.Tensor:
        return torch.as_tensor(array, device=device)

    return Batch(
        tokens=put(batch.tokens),
        where=put(batch.where),
        targets=put(batch.targets),
        rollout=put(batch.rollout),
        advantages=put(batch.advantages),
        weights=put(batch.weights),
        real=batch.real,
        shared=_shared(batch, device),
    )


def _shared(batch: MicroBatch, device: torch.device) -> Shared | None:
    if batch.branch is None or batch.positions is None:
        return None
    branch, positions = (torch.as_tensor(a, device=device) for a in (batch.branch, batch.positions))
    return Shared(tree_mask(branch), positions)


def accumulate(
    policy: Policy,
    batches: Sequence[Batch],
    *,
    temperature: float,
    losses_of: Callable[[int, Scored], torch.Tensor],
) -> None:
    """Add the gradient of the summed losses of all `batches`.

    `losses_of(i, scored)` gives the losses of batch i, shape (N,), already weighted.
    """
    for i, batch in enumerate(batches):
        with policy.accumulating(last=i == len(batches) - 1):
            scored = policy.score(
                batch.tokens,
                batch.where,
                batch.targets,
                temperature=temperature,
                shared=batch.shared,
            )
            # autograd's backward is untyped
            losses_of(i, scored).sum().backward()  # type: ignore[no-untyped-call]
