"""One pass of gradients over micro-batches, shared by all kinds of work."""

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
    counts: torch.Tensor
    groups: torch.Tensor
    ages: torch.Tensor
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
        counts=put(batch.counts),
        groups=put(batch.groups),
        ages=put(batch.ages),
        real=batch.real,
        shared=_shared(batch, device),
    )


def _shared(batch: MicroBatch, device: torch.device) -> Shared | None:
    if batch.branch is None or batch.trunk is None or batch.positions is None:
        return None
    arrays = (batch.branch, batch.trunk, batch.positions)
    branch, trunk, positions = (torch.as_tensor(array, device=device) for array in arrays)
    return Shared(tree_mask(branch, trunk), positions)


def accumulate(
    policy: Policy,
    batches: Sequence[Batch],
    *,
    temperature: float,
    losses_of: Callable[[int, Scored], torch.Tensor],
    explore: bool = False,
) -> None:
    """Add the gradient of the summed losses of all `batches`.

    `losses_of(i, scored)` gives the losses of batch i, shape (N,), already weighted. `explore`:
    the entropy carries gradient too.
    """
    for i, batch in enumerate(batches):
        with policy.accumulating(last=i == len(batches) - 1):
            scored = policy.score(
                batch.tokens,
                batch.where,
                batch.targets,
                temperature=temperature,
                shared=batch.shared,
                explore=explore,
            )
            # autograd's backward is untyped
            losses_of(i, scored).sum().backward()  # type: ignore[no-untyped-call]
