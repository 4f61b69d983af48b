"""Loss and gradient of each algorithm against TRL's, on identical rollouts in float32.

As `grpo_parity`, whose rollouts and checks it uses: holes in the masks (but for RLOO, whose
trainer knows none), ratios beyond both clips, a planted error, two ranks. docs/algorithms.md says
where conventions differ. TRL 1.16 has no PPO and no REINFORCE++.
"""

from __future__ import annotations

from typing import Any

from benchmarks.grpo_parity.compare import compare
from benchmarks.grpo_parity.rollouts import Case
from benchmarks.harness import Measured

CLIP = {"clip_low": 0.2, "clip_high": 0.28}
THEIR_CLIP = {"epsilon": 0.2, "epsilon_high": 0.28}
NARROW = {"clip_low": 0.05, "clip_high": 0.08}
THEIR_NARROW = {"epsilon": 0.05, "epsilon_high": 0.08}
PLAIN_KL: dict[str, Any] = {"kl_coefficient": 0.07, "kl": {"corrected": False}}
THEIR_PLAIN_KL = {"beta": 0.07, "use_bias_correction_kl": False}
NO_KL = {"beta": 0.0}


def measure() -> Measured:
    """Return the largest relative difference; NaN if a check on the check failed."""
    return compare(cases())


def cases() -> list[Case]:
    """One case for each algorithm, and some with a term of KL or entropy."""
    return [
        Case("dapo", {"type": "dapo", **CLIP}, {"loss_type": "dapo", **THEIR_CLIP, **NO_KL}),
        Case(
            "grpo+kl",
            {"type": "grpo", "aggregation": "sequence-mean", **CLIP, **PLAIN_KL},
            {"loss_type": "grpo", **THEIR_CLIP, **THEIR_PLAIN_KL},
        ),
        Case(
            "dr-grpo",
            {"type": "grpo", "aggregation": "dr-grpo", **CLIP},
            {"loss_type": "dr_grpo", **THEIR_CLIP, **NO_KL},
        ),
        Case(
            "dapo+entropy",
            {"type": "dapo", "entropy_coefficient": 0.05, **CLIP},
            {"loss_type": "dapo", "entropy_coef": 0.05, **THEIR_CLIP, **NO_KL},
        ),
        Case("gspo", {"type": "gspo", **NARROW}, {**_sequence(), **THEIR_NARROW, **NO_KL}),
        Case(
            "gspo+kl",
            {"type": "gspo", **NARROW, **PLAIN_KL},
            {**_sequence(), **THEIR_NARROW, **THEIR_PLAIN_KL},
        ),
        Case(
            "cispo",
            {"type": "cispo", "clip_high": 0.28},
            {"loss_type": "cispo", "epsilon_high": 1.28, **NO_KL},
        ),
        Case(
            "rloo",
            {"type": "rloo", **CLIP},
            {**THEIR_CLIP, **NO_KL},
            trainer="rloo",
            holes=False,
        ),
        Case(
            "decoupled",
            {"type": "dapo", "decoupled": {"weight_max": 1.3}, **CLIP},
            {"loss_type": "dapo", **THEIR_CLIP, **NO_KL},
            weight_max=1.3,
        ),
    ]


def _sequence() -> dict[str, Any]:
    return {"loss_type": "grpo", "importance_sampling_level": "sequence"}
