"""A body is verified piece by piece, as it comes."""

from __future__ import annotations

import numpy as np
import pytest

from ebbtide.transfer.frames import BLOCK, Checker, copy

SIZE = 5 * BLOCK + 7
BODY = np.arange(SIZE, dtype=np.uint32).astype(np.uint8)
SUMS = copy(np.empty_like(BODY), BODY)


def told(body: np.ndarray, sums: bytes, piece: int, upto: int = SIZE) -> Checker:
    checker = Checker(body, sums)
    for start in range(0, upto, piece):
        checker.arrived(start, min(start + piece, upto))
    return checker


@pytest.mark.parametrize("piece", [BLOCK, 2 * BLOCK, 8 * BLOCK])
def test_whatever_the_pieces_a_good_body_is_whole(piece: int) -> None:
    assert told(BODY, SUMS, piece).whole
    assert not told(BODY, SUMS, piece, upto=4 * BLOCK).whole
    assert not told(BODY, SUMS[:-8], piece).whole


@pytest.mark.parametrize("at", [0, BLOCK - 1, BLOCK, 3 * BLOCK + 5, SIZE - 1])
def test_one_wrong_bit_is_found_wherever_it_is(at: int) -> None:
    spoilt = BODY.copy()
    spoilt[at] ^= 1
    assert not told(spoilt, SUMS, 2 * BLOCK).whole
