"""GRPO's loss and gradient against TRL's GRPOTrainer, on identical rollouts in float32.

Masks have holes and uneven ends, both clip sides are active, KL is on. Ours runs in small
micro-batches, TRL in one batch. A planted shift of the mask by one token must be noticed, or
the comparison is worth nothing.
"""

from benchmarks.grpo_parity.compare import measure

__all__ = ["measure"]
