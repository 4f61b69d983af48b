"""The ranks of one learner: who they are and what they tell each other.

Every rank calls the same methods in the same order, from one thread. Each call ends within
`timeout`, or raises: a peer that died breaks the connection at once, one that hangs runs into
the time-out. Nobody catches these errors; the process ends and the next attempt starts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Literal

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

MAX_MESSAGE = 1 << 20


@dataclass(frozen=True)
class Gang:
    """One rank's view. Messages travel over gloo, also where tensors travel over NCCL."""

    rank: int
    size: int
    device: torch.device
    mesh: DeviceMesh

    @property
    def leads(self) -> bool:
        """Whether this is rank 0, which talks to the planner."""
        return self.rank == 0

    def broadcast(self, message: bytes = b"") -> bytes:
        """Return rank 0's `message` on every rank."""
        assert len(message) <= MAX_MESSAGE
        size = torch.tensor([len(message)])
        dist.broadcast(size, src=0)
        body = torch.zeros(int(size), dtype=torch.uint8)
        if self.leads and message:
            body = torch.frombuffer(bytearray(message), dtype=torch.uint8)
        if int(size):
            dist.broadcast(body, src=0)
        return body.numpy().tobytes()

    def gather(self, message: bytes) -> list[bytes]:
        """Return the messages of all ranks, by rank, on every rank."""
        sizes = torch.zeros(self.size, dtype=torch.int64)
        sizes[self.rank] = len(message)
        dist.all_reduce(sizes)
        row = torch.zeros(int(sizes.max()), dtype=torch.uint8)
        row[: len(message)] = torch.frombuffer(bytearray(message or b"\0"), dtype=torch.uint8)[
            : len(message)
        ]
        rows = [torch.zeros_like(row) for _ in range(self.size)]
        if len(row):
            dist.all_gather(rows, row)
        return [r[:n].numpy().tobytes() for r, n in zip(rows, sizes.tolist(), strict=True)]

    def votes(self, mine: str = "") -> list[str]:
        """What every rank says, by rank; an empty text says that all is well."""
        return [vote.decode(errors="replace") for vote in self.gather(mine.encode())]

    def total(self, values: torch.Tensor) -> torch.Tensor:
        """Sum over ranks, in place."""
        dist.all_reduce(values)
        return values

    def largest(self, values: torch.Tensor) -> torch.Tensor:
        """Maximum over ranks, in place."""
        dist.all_reduce(values, op=dist.ReduceOp.MAX)
        return values

    def leave(self) -> None:
        """Close the process group; the gang cannot be used any more."""
        dist.destroy_process_group()


def join(
    rank: int,
    size: int,
    rendezvous: str,
    *,
    device: Literal["auto", "cpu", "cuda"],
    timeout: float,
) -> Gang:
    """Meet the other ranks at `rendezvous` (tcp://host:port or file:///path), in `timeout` s.

    File rendezvous: the path must not exist before, and must be new for each attempt.
    """
    where = pick_device(rank, device)
    backend = "cpu:gloo,cuda:nccl" if where.type == "cuda" else "gloo"
    if where.type == "cuda":
        torch.cuda.set_device(where)
    dist.init_process_group(
        backend,
        init_method=rendezvous,
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=timeout),
    )
    return Gang(rank, size, where, init_device_mesh(where.type, (size,)))


def pick_device(
    rank: int,
    wanted: Literal["auto", "cpu", "cuda"],
    *,
    available: Callable[[], int] = torch.cuda.device_count,
) -> torch.device:
    """Return a GPU by rank, where one is there and wanted, else the CPU."""
    count = available() if wanted != "cpu" else 0
    return torch.device("cuda", rank % count) if count else torch.device("cpu")
