"""PPO's surrogate with a ratio for each token.

GRPO (DeepSeekMath, arXiv 2402.03300, equation 3), Dr. GRPO (arXiv 2503.20783), DAPO (arXiv
2503.14476, equation 8) REINFORCE++ (arXiv 2501.03262) and PPO itself (arXiv 1707.06347) share it; they differ in advantages,
in the upper clip and in how tokens are weighted.
"""

from __future__ import annotations

from dataclasses import dataclass

from services.learner.engine.objectives.tokens import Clip, Surrogate, Tokens, clipped


@dataclass(frozen=True)
class Clipped:
    """`clip`: bounds of each token's ratio."""

    clip: Clip

    def __call__(self, tokens: Tokens) -> Surrogate:
        """Losses of the tokens."""
        return clipped(tokens.ratio, tokens.advantages, self.clip)
