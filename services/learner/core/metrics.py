"""What every update is judged by: sums that add up over micro-batches and ranks.

The mismatch between the engine that sampled and the learner that recomputes is measured
every step, also where training is strictly on-policy: both hold the same weights, but not
the same kernels, and a silent difference ruins the ratio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ebbtide.spec import MismatchSpec

SUMS = (
    "tokens",  # real tokens behind the sums below
    "loss",  # already normalised by the global denominators
    "kl",  # estimate of KL(policy || reference)
    "entropy",  # nats
    "clipped_low",
    "clipped_high",
    "gap",  # engine's log-probability minus ours
    "gap_k3",
    "x",  # engine's log-probability: moments for the correlation
    "y",  # ours
    "xx",
    "yy",
    "xy",
    "w",  # importance weight ours / engine's, for the effective sample size
    "ww",
    "correction",  # weight of the policy loss by that mismatch
    "rejected",
)
MAXES = ("ratio_max", "mismatch_ratio_max")


def update_stats(sums: Sequence[float], maxes: Sequence[float]) -> dict[str, float]:
    """Return the metrics of one update from global sums (order of SUMS) and maxima.

    Means are over computed tokens; `mismatch_*` compare engine and learner at equal weights:
    `mismatch_kl` estimates KL(engine || learner) in nats per token (k3), `mismatch_ess` is
    the effective share of samples under the weights ours / engine's, 1 at its best.
    """
    total = dict(zip(SUMS, sums, strict=True))
    n = max(1.0, total["tokens"])
    return {
        "loss": total["loss"],
        "computed_tokens": total["tokens"],
        "kl": total["kl"] / n,
        "entropy": total["entropy"] / n,
        "clip_fraction_low": total["clipped_low"] / n,
        "clip_fraction_high": total["clipped_high"] / n,
        "mismatch_gap": total["gap"] / n,
        "mismatch_kl": total["gap_k3"] / n,
        "mismatch_correlation": _correlation(total),
        "mismatch_ess": _ess(total),
        "correction_weight": total["correction"] / n,
        "rejected_fraction": total["rejected"] / n,
        **dict(zip(MAXES, maxes, strict=True)),
    }


def alarm(stats: Mapping[str, float], spec: MismatchSpec) -> bool:
    """Whether engine and learner disagree by more than is healthy."""
    far = stats["mismatch_kl"] > spec.alarm_kl or stats["mismatch_ess"] < spec.alarm_ess
    return far or not math.isfinite(stats["mismatch_kl"])


def _correlation(total: Mapping[str, float]) -> float:
    """Pearson's r of the two log-probabilities; 1 where neither varies."""
    n = total["tokens"]
    if n < 2:
        return 1.0
    vx = total["xx"] - total["x"] ** 2 / n
    vy = total["yy"] - total["y"] ** 2 / n
    covariance = total["xy"] - total["x"] * total["y"] / n
    spread = math.sqrt(max(vx, 0.0) * max(vy, 0.0))
    return 1.0 if spread <= 1e-12 * n else covariance / spread


def _ess(total: Mapping[str, float]) -> float:
    n, squares = total["tokens"], total["ww"]
    return 1.0 if n == 0 or squares == 0 else total["w"] ** 2 / (n * squares)
