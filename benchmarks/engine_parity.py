"""`engine_parity`: vLLM's log-probabilities against transformers', in bfloat16.

Sixteen answers of 32 tokens, before and after each of 20 weight updates, once with updates of size
0 and once with real ones; the head is tied to the embedding, which is where a load can go wrong
without a word. The figure is the greatest difference over all of them.
"""

from __future__ import annotations

from benchmarks import vllm_side
from benchmarks.harness import Measured


def measure() -> Measured:
    """The greatest absolute difference."""
    found = vllm_side.run("parity")
    rows = [(rate, those[0], max(those[1:])) for rate, those in found.items()]
    columns = ("size of updates", "before", "greatest after one of 20")
    return Measured(max(max(those) for those in found.values()), columns, rows)
