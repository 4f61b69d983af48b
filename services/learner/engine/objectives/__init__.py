"""What each algorithm makes of log-probabilities and advantages, one file for each."""

from __future__ import annotations

from ebbtide.spec import (
    CispoSpec,
    DapoSpec,
    GrpoSpec,
    GspoSpec,
    PolicyGradientSpec,
    PpoSpec,
    ReinforceSpec,
    RlooSpec,
)
from services.learner.engine.objectives.cispo import Cispo
from services.learner.engine.objectives.grpo import Clipped
from services.learner.engine.objectives.gspo import Gspo
from services.learner.engine.objectives.rloo import Rloo
from services.learner.engine.objectives.tokens import Clip, Objective


def objective_of(algorithm: PolicyGradientSpec) -> Objective:
    """The surrogate of `algorithm`: PPO's but for those that have one of their own."""
    if isinstance(algorithm, CispoSpec):
        return Cispo(algorithm.clip_high)
    assert isinstance(
        algorithm, GrpoSpec | DapoSpec | GspoSpec | RlooSpec | ReinforceSpec | PpoSpec
    )
    clip = Clip(algorithm.clip_low, algorithm.clip_high)
    if isinstance(algorithm, GspoSpec):
        return Gspo(clip)
    return Rloo(clip) if isinstance(algorithm, RlooSpec) else Clipped(clip)


__all__ = ["Cispo", "Clip", "Clipped", "Gspo", "Objective", "Rloo", "objective_of"]
