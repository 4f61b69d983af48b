"""Several updates in one pass over a batch: which micro-batches make which update (pure).

Every k-th micro-batch of a rank, from the i-th on, is of mini-batch i. As the planner puts answers
of like length together, every mini-batch so gets short and long ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def dealt(bins: Sequence[Sequence[T]], parts: int) -> list[list[T]]:
    """The samples of each micro-batch, for `parts` mini-batches of equally many.

    The number depends on that of `bins` alone, which is the same on all ranks. Where there are
    fewer micro-batches than parts each is split; else empty ones fill the last round up.
    """
    if len(bins) < parts:
        return [list(samples[i::parts]) for samples in bins for i in range(parts)]
    return [*map(list, bins), *([] for _ in range(-len(bins) % parts))]


def mini_batch(n: int, number: int, parts: int) -> range:
    """Which of a rank's `n` micro-batches are those of mini-batch `number` of `parts`."""
    return range(number, n, parts)
