"""Whole tensors from the shards of all ranks, many of them in one message."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Shard

from services.learner.engine.gang import Gang

BUCKET = 16 << 20
"""Numbers of one rank in a message: a small model travels in one, a large one needs no second copy."""


def whole_state(
    module: torch.nn.Module, gang: Gang, *, learning_only: bool = False, bucket: int = BUCKET
) -> dict[str, torch.Tensor]:
    """Parameters and buffers of `module` by name, whole and on the CPU of rank 0; empty elsewhere.

    All ranks call it together. `learning_only`: without parameters that do not learn. Names that
    share one parameter each have it. A message for every tensor would cost a small model more
    than its update.
    """
    state = module.state_dict()
    named = dict(module.named_parameters(remove_duplicate=False))
    if learning_only:
        state = {n: t for n, t in state.items() if n not in named or named[n].requires_grad}
    first: dict[int, str] = {}
    stored = {name: first.setdefault(id(named.get(name, t)), name) for name, t in state.items()}
    found = whole({name: state[name] for name in first.values()}, gang, bucket=bucket)
    return {name: found[stored[name]] for name in state} if gang.leads else {}


def whole(
    tensors: Mapping[str, torch.Tensor], gang: Gang, *, bucket: int = BUCKET
) -> dict[str, torch.Tensor]:
    """`tensors`, whichever way they are sharded, whole and on the CPU of rank 0; empty elsewhere."""
    found: dict[str, torch.Tensor] = {}
    rows = {n: t for n, t in tensors.items() if isinstance(t, DTensor) and _by_rows(t, gang)}
    for names in _buckets(rows, bucket):
        found.update(_gathered({name: rows[name] for name in names}, gang))
    for name, tensor in tensors.items():
        if name not in rows:
            full = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            if gang.leads:
                found[name] = full.detach().to("cpu", copy=True)
    return found


def _by_rows(tensor: DTensor, gang: Gang) -> bool:
    return tuple(tensor.placements) == (Shard(0),) and tensor.device_mesh.size() == gang.size


def _buckets(tensors: Mapping[str, DTensor], most: int) -> Iterator[list[str]]:
    """Names, in order: each bucket has one type, and at most so many numbers, or one tensor."""
    for _, same in groupby(tensors, key=lambda name: tensors[name].dtype):
        bucket, size = list[str](), 0
        for name in same:
            # Of the first rank, who has the most: all ranks must come to the same buckets.
            shape = _shard_shape(tensors[name], rank=0)
            if bucket and size + shape.numel() > most:
                yield bucket
                bucket, size = [], 0
            bucket.append(name)
            size += shape.numel()
        yield bucket


def _shard_shape(tensor: DTensor, *, rank: int) -> torch.Size:
    """Of what `rank` has: rows are dealt as `torch.chunk` does."""
    rows, ranks = tensor.shape[0], tensor.device_mesh.size()
    each = -(-rows // ranks)
    mine = max(0, min(rows, (rank + 1) * each) - rank * each)
    return torch.Size((mine, *tensor.shape[1:]))


def _gathered(tensors: Mapping[str, DTensor], gang: Gang) -> dict[str, torch.Tensor]:
    """Whole tensors on rank 0, by one message from each rank."""
    shapes = [
        [_shard_shape(tensor, rank=rank) for tensor in tensors.values()]
        for rank in range(gang.size)
    ]
    mine = torch.cat([tensor.to_local().detach().reshape(-1) for tensor in tensors.values()])
    padding = sum(shape.numel() for shape in shapes[0]) - mine.numel()
    mine = torch.nn.functional.pad(mine, (0, padding))
    rows = [torch.empty_like(mine) for _ in shapes] if gang.leads else None
    dist.gather(mine, rows, dst=0)
    if rows is None:
        return {}
    parts = [_apart(row.cpu(), of) for row, of in zip(rows, shapes, strict=True)]
    return {
        name: torch.cat(shards)
        for name, shards in zip(tensors, zip(*parts, strict=True), strict=True)
    }


def _apart(flat: torch.Tensor, shapes: Sequence[torch.Size]) -> list[torch.Tensor]:
    """The tensors of `shapes` that begin `flat`."""
    sizes = [shape.numel() for shape in shapes]
    pieces = torch.split(flat[: sum(sizes)], sizes)
    return [piece.view(shape) for piece, shape in zip(pieces, shapes, strict=True)]
