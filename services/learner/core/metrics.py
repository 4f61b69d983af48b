"""What every update is judged by: sums that add up over micro-batches and ranks.

The mismatch between the engine that sampled and the learner that recomputes is measured
every step, also where training is strictly on-policy: both hold the same weights, but not
the same kernels, and a silent difference ruins the ratio.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import accumulate

from ebbtide.spec import MismatchSpec

SUMS = (
    "tokens",  # real tokens behind the sums below
    "loss",  # already normalised by the global denominators
    "kl",  # estimate of KL(policy || reference)
    "entropy",  # nats
    "clipped_low",
    "clipped_high",
    "stale",  # tokens of an older policy than the batch's
    "age",  # versions that they are older
    "fresh",  # tokens that engine and learner know at equal weights: those behind all sums from here
    "gap",  # engine's log-probability minus ours
    "gap_k3",
    "x",  # engine's log-probability: moments for the correlation
    "y",  # ours
    "xx",
    "yy",
    "xy",
    "w",  # importance weight ours / engine's, for the effective sample size
    "ww",
    # Over all tokens again:
    "correction",  # weight of the policy loss by that mismatch
    "rejected",
    "a",  # advantages: moments for their spread
    "aa",
)
MAXES = ("ratio_max", "mismatch_ratio_max")
BINS_A_SIDE, BIN = 512, 1.0 / 256.0
"""Ratios are counted in bins of their logarithm: so many on each side of 0, of this width."""
BINS = 2 * BINS_A_SIDE + 1
QUANTILES = {"ratio_p01": 0.01, "ratio_p50": 0.5, "ratio_p99": 0.99}


def update_stats(
    sums: Sequence[float], maxes: Sequence[float], bins: Sequence[float] = ()
) -> dict[str, float]:
    """Return the metrics of one update from global sums (order of SUMS), maxima, ratios by bin.

    Means are over computed tokens; `mismatch_*` compare engine and learner at equal weights, so
    over tokens of the batch's own policy: `mismatch_kl` estimates KL(engine || learner) in nats per token (k3), `mismatch_ess` is
    the effective share of samples under the weights ours / engine's, 1 at its best.
    `ratio_p..` are quantiles over tokens, to 0.2 % of themselves; beyond e^2 they stay there.
    """
    total = dict(zip(SUMS, sums, strict=True))
    n, fresh = max(1.0, total["tokens"]), max(1.0, total["fresh"])
    return {
        "loss": total["loss"],
        "computed_tokens": total["tokens"],
        "kl": total["kl"] / n,
        "entropy": total["entropy"] / n,
        "clip_fraction_low": total["clipped_low"] / n,
        "clip_fraction_high": total["clipped_high"] / n,
        "stale_fraction": total["stale"] / n,
        "age_mean": total["age"] / n,
        "mismatch_gap": total["gap"] / fresh,
        "mismatch_kl": total["gap_k3"] / fresh,
        "mismatch_correlation": _correlation(total),
        "mismatch_ess": _ess(total),
        "correction_weight": total["correction"] / n,
        "rejected_fraction": total["rejected"] / n,
        "advantage_mean": total["a"] / n,
        "advantage_std": math.sqrt(max(0.0, total["aa"] / n - (total["a"] / n) ** 2)),
        **ratio_quantiles(bins),
        **dict(zip(MAXES, maxes, strict=True)),
    }


def ratio_quantiles(bins: Sequence[float]) -> dict[str, float]:
    """The QUANTILES of ratios that were counted in BINS bins; none without a token."""
    reached = list(accumulate(bins))
    if not reached or not reached[-1]:
        return {}
    wanted = {name: share * reached[-1] for name, share in QUANTILES.items()}
    places = {
        name: next(i for i, count in enumerate(reached) if count >= least)
        for name, least in wanted.items()
    }
    return {name: math.exp((i - BINS_A_SIDE) * BIN) for name, i in places.items()}


def alarm(stats: Mapping[str, float], spec: MismatchSpec) -> bool:
    """Whether engine and learner disagree by more than is healthy."""
    far = stats["mismatch_kl"] > spec.alarm_kl or stats["mismatch_ess"] < spec.alarm_ess
    return far or not math.isfinite(stats["mismatch_kl"])


def _correlation(total: Mapping[str, float]) -> float:
    """Pearson's r of the two log-probabilities; 1 where neither varies."""
    n = total["fresh"]
    if n < 2:
        return 1.0
    vx = total["xx"] - total["x"] ** 2 / n
    vy = total["yy"] - total["y"] ** 2 / n
    covariance = total["xy"] - total["x"] * total["y"] / n
    spread = math.sqrt(max(vx, 0.0) * max(vy, 0.0))
    return 1.0 if spread <= 1e-12 * n else covariance / spread


def _ess(total: Mapping[str, float]) -> float:
    n, squares = total["fresh"], total["ww"]
    return 1.0 if n == 0 or squares == 0 else total["w"] ** 2 / (n * squares)
