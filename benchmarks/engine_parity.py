"""`engine_parity`: vLLM's log-probabilities against transformers', and greedy tokens that move.

Sixteen answers of 32 tokens in bfloat16, before and after each of 20 weight updates, once with
updates of size 0 and once with real ones; the head is tied to the embedding, which is where a load
can go wrong without a word. The figure is the greatest difference over all of them. It does not
hold (NaN) unless 100 of 100 greedy answers (float32) have the same tokens whether an engine has
them from the first token to the last, goes on with them, or is given their keys and values.
"""

from __future__ import annotations

import math

from benchmarks import vllm_side
from benchmarks.harness import Measured

TEXTS = 100
UNBOUND = "vLLM as torch"
"""Told and not judged: two engines round differently."""


def measure() -> Measured:
    """The greatest absolute difference; NaN if a greedy token changed on the way."""
    found, alike = vllm_side.run("parity"), vllm_side.run("greedy")
    rows: list[tuple[object, ...]] = [
        (f"log-probabilities, updates of size {rate}", those[0], max(those[1:]))
        for rate, those in found.items()
    ]
    rows += [(f"greedy, {way}", f"{n} of {TEXTS}", "") for way, n in alike.items()]
    same = all(n == TEXTS for way, n in alike.items() if way != UNBOUND)
    worst = max(max(those) for those in found.values())
    columns = ("what", "before, or alike", "greatest after one of 20")
    return Measured(worst if same else math.nan, columns, rows)
