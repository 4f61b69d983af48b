"""`vllm_overhead`: samples drawn through the engine port, against AsyncLLM called directly.

The same 256 samples (32 prompts of 8, a 0.3M-parameter Qwen2, float32) in the same running vLLM,
in turns, so that a busy machine slows both. The figure is the median ratio of tokens per second.
"""

from __future__ import annotations

import statistics

from benchmarks import vllm_side
from benchmarks.harness import Measured


def measure() -> Measured:
    """The median ratio, over turns, of the port's speed to vLLM's own."""
    turns = vllm_side.run("overhead")
    ratios = [ours / raw for ours, raw in turns]
    rows = [(n, ours, raw, ours / raw) for n, (ours, raw) in enumerate(turns)]
    columns = ("turn", "tokens/s through the port", "tokens/s directly", "ratio")
    return Measured(statistics.median(ratios), columns, rows)
