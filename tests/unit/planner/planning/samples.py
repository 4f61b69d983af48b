"""Profiles and lengths for the planning tests."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ebbtide.profiles import ProfileFile
from services.planner.core.planning.profile import Profile, make_profile
from services.planner.core.prediction.forecast import Forecast, log_normal

BATCHES = (1, 8, 32, 64, 128, 256, 512)
CONTEXTS = (0, 16_384, 262_144)


def profile_file(**changes: object) -> ProfileFile:
    """A GPU that reads 8 ms of weights, with a knee at 100 samples."""
    numbers: dict[str, object] = {
        "version": 1,
        "engine": "torch",
        "model": "small",
        "gpu": "any",
        "tensor_parallel": 1,
        "batches": BATCHES,
        "contexts": CONTEXTS,
        "seconds": tuple(tuple(max(8e-3, 8e-5 * b) + 3e-8 * c for c in CONTEXTS) for b in BATCHES),
        "prefill_seconds_per_token": 34e-6,
        "startup": {"schedule": 2.0, "weights": 8.0},
        "wake_seconds": 1.0,
        "catch_up_seconds": 0.5,
        "kv_tokens": 10_000_000,
        "kv_bytes_per_token": 36_864,
        "handover_bytes_per_second": 3e9,
    }
    return ProfileFile(**{**numbers, **changes})  # type: ignore[arg-type]


def profile(**changes: object) -> Profile:
    return make_profile(profile_file(**changes))


def lengths_like_gsm8k(prompts: int, *, seed: int = 0, within: float = 0.2) -> Forecast:
    """Forecasts of one sample per prompt, as after an epoch: `within` is what stays unknown."""
    middles = 5.65 + np.random.default_rng(seed).normal(0.0, 0.35, prompts)
    return log_normal(middles, np.full(prompts, within), 2048)


def realised(
    forecast: Forecast, generator: np.random.Generator, within: float = 0.2
) -> npt.NDArray[np.float64]:
    """Lengths drawn from `lengths_like_gsm8k`."""
    noise = generator.normal(0.0, within, len(forecast))
    return np.clip(forecast.at(0.5) * np.exp(noise), 1, 2048).round()
