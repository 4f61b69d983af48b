"""How much of the answers is said again: repeated n-grams, the first sign of a policy that loops."""

from __future__ import annotations

import numpy as np

from services.learner.core.samples import Ints, MicroBatch

N = 4


def repeated(batch: MicroBatch) -> tuple[int, int]:
    """N-grams that stand before them in the same answer, and all, over the batch's sequences.

    Of the tokens that the policy chose; rep-4 of arXiv 1908.04319, section 6, counted in sums.
    """
    ends = np.cumsum(batch.counts)
    found = [_of(answer) for answer in np.split(batch.targets, ends[:-1])]
    return sum(again for again, _ in found), sum(every for _, every in found)


def _of(answer: Ints) -> tuple[int, int]:
    if len(answer) < N:
        return 0, 0
    grams = np.lib.stride_tricks.sliding_window_view(answer, N)
    # Rows as one value each: np.unique sorts them by their bytes.
    whole = np.ascontiguousarray(grams).view(np.dtype((np.void, N * answer.itemsize)))
    return len(grams) - len(np.unique(whole)), len(grams)
