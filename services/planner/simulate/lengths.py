"""Made-up answer lengths with a published structure, the same for whoever replays them.

The log of a length is the sum of what prompt, policy, both together and chance contribute, whose
shares of the variance TailSieve measured on a real workload: 64.8, 2.2, 6.9 and 26.1 %. The whole
trace is drawn at once, so that every predictor and every plan meets the same answers (common
random numbers).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Shares:
    """Parts of the variance of log length; their sum is 1."""

    prompt: float = 0.648
    policy: float = 0.022
    both: float = 0.069
    chance: float = 0.261

    def with_chance(self, chance: float) -> Shares:
        """The same proportions between the others, another part for chance."""
        scale = (1.0 - chance) / (1.0 - self.chance)
        return Shares(self.prompt * scale, self.policy * scale, self.both * scale, chance)


@dataclass(frozen=True)
class Trace:
    """`uncut`, `lengths`, `censored`: (epochs, prompts, samples); per prompt the rest.

    `uncut`: what an answer would have without a limit; `lengths`: tokens it got.
    """

    uncut: NDArray[np.int64]
    lengths: NDArray[np.int32]
    censored: NDArray[np.bool_]
    prompt_tokens: NDArray[np.int32]
    prompt_ids: tuple[str, ...]
    tasks: tuple[str, ...]


def draw(
    *,
    seed: int,
    prompts: int,
    epochs: int,
    samples: int,
    limit: int,
    median: float = 1160.0,
    p90: float = 4115.0,
    trend: float = 0.0,
    shares: Shares = Shares(),
    tasks: Sequence[str] = ("math",),
) -> Trace:
    """Draw a trace.

    `median`, `p90`: of all uncut lengths (default: TailSieve's workload);
    `trend`: what the log grows by in an epoch. A fifth of a prompt's part shows in its length.
    """
    random = np.random.default_rng(seed)
    deviation = np.log(p90 / median) / 1.281552
    place, chance = random.standard_normal(prompts), random.standard_normal
    parts = (
        np.sqrt(shares.prompt) * place[None, :, None]
        + np.sqrt(shares.policy) * chance((epochs, 1, 1))
        + np.sqrt(shares.both) * chance((epochs, prompts, 1))
        + np.sqrt(shares.chance) * chance((epochs, prompts, samples))
    )
    logs = np.log(median) + deviation * parts + trend * np.arange(epochs)[:, None, None]
    uncut = np.maximum(np.rint(np.exp(logs)), 1).astype(np.int64)
    visible = np.sqrt(0.2) * place + np.sqrt(0.8) * chance(prompts)
    return Trace(
        uncut,
        np.minimum(uncut, limit).astype(np.int32),
        uncut > limit,
        np.rint(np.exp(4.5 + 0.6 * visible)).astype(np.int32),
        tuple(f"prompt-{number}" for number in range(prompts)),
        tuple(tasks[number % len(tasks)] for number in range(prompts)),
    )
