"""Several updates in one pass over a batch: which micro-batches make which update (pure).

Every k-th micro-batch of a rank, from the i-th on, is of mini-batch i. Micro-batches hold answers
of like length, so few of them are split: else each update would be made of answers of one length.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar

T = TypeVar("T")
_MANY = 4
"""With so many micro-batches for each mini-batch none is split."""


def dealt(bins: Sequence[Sequence[T]], parts: int, *, rank: int = 0) -> list[list[T]]:
    """The samples of each micro-batch, for `parts` mini-batches of equally many.

    The number depends on that of `bins` alone, which is the same on all ranks. Split ones go on
    where the one before ended, and on each `rank` with another mini-batch, so that all get
    equally many answers but for one on each rank. Of whole ones the last round is filled up.
    """
    if parts == 1 or len(bins) >= _MANY * parts:
        return [*map(list, bins), *([] for _ in range(-len(bins) % parts))]
    begins = accumulate((len(samples) for samples in bins), initial=rank)
    return [
        list(samples[(part - begin) % parts :: parts])
        for begin, samples in zip(begins, bins, strict=False)
        for part in range(parts)
    ]


def mini_batch(n: int, number: int, parts: int) -> range:
    """Which of a rank's `n` micro-batches are those of mini-batch `number` of `parts`."""
    return range(number, n, parts)
