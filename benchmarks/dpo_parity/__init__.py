"""Loss and gradient of DPO against TRL's DPOTrainer, on identical pairs in float32.

Pairs of unlike lengths, a reference that is another model than the policy. TRL 1.16 has no label
smoothing of its "sigmoid" loss (its "robust" is another formula): that of ours is checked by tests
against the formula written out.
"""

from benchmarks.dpo_parity.compare import measure

__all__ = ["measure"]
