"""PPO's advantages, losses and gradients against torchrl's, on identical rollouts in float32.

Policy, reference and critic are tables (the next token's logits, and a value, of the token
before), so both sides hold the same parameters. Answers have uneven lengths and holes in their
masks; ratios and values lie beyond both sides of their clips. Planted errors must be noticed.
"""

from benchmarks.ppo_parity.compare import measure

__all__ = ["measure"]
