"""Synthetic rollouts and models as arrays, and the options of each case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]
ROWS, PROMPT, LIMIT, VOCABULARY = 24, 5, 31, 211
TEMPERATURE = 0.9


@dataclass(frozen=True)
class Case:
    """Options that both sides take; the words are those of a job."""

    name: str
    gamma: float
    gae_lambda: float
    clip_low: float
    clip_high: float
    value_clip: float | None
    kl_coefficient: float = 0.0


CASES = (
    Case("ppo", 1.0, 0.95, 0.2, 0.28, 0.2),
    Case("ppo+kl, discounted", 0.97, 0.9, 0.2, 0.2, 0.2, kl_coefficient=0.05),
    Case("ppo, values free, lambda 1", 1.0, 1.0, 0.2, 0.2, None),
)


def make() -> dict[str, NDArray[Any]]:
    """Answers that begin at token PROMPT of `tokens`; `chosen` (ROWS, LIMIT): not all of them.

    `states`, `actions`, `mask`, `old`, `values`, `reference` hold the chosen tokens alone, one
    after the other from the left: the token before, the token, whether there is one, and what was
    known before the batch: the policy's log-probability, the value, the reference's.
    """
    rng = np.random.default_rng(11)
    lengths = rng.integers(3, LIMIT, ROWS)
    lengths[:2] = LIMIT, 1
    chosen = np.arange(LIMIT)[None] < lengths[:, None]
    chosen &= rng.random((ROWS, LIMIT)) < 0.8
    chosen[np.arange(ROWS), lengths - 1] = True
    tokens = rng.integers(0, VOCABULARY, (ROWS, PROMPT + LIMIT))
    order = np.argsort(~chosen, axis=1, kind="stable") + PROMPT
    shape = (VOCABULARY, VOCABULARY)
    policy, reference = (rng.normal(0, 1, shape).astype(np.float32) for _ in range(2))
    critic = rng.normal(0, 0.5, (VOCABULARY, 1)).astype(np.float32)
    states = np.take_along_axis(tokens, order - 1, 1)
    actions = np.take_along_axis(tokens, order, 1)
    old = _logprobs(policy, states, actions) + rng.normal(0, 0.35, order.shape)
    return {
        "tokens": tokens,
        "lengths": lengths,
        "chosen": chosen,
        "policy": policy,
        "critic": critic,
        "rewards": rng.integers(0, 3, ROWS).astype(np.float32),
        "states": states,
        "actions": actions,
        "mask": np.arange(LIMIT)[None] < chosen.sum(1)[:, None],
        "old": old.astype(np.float32),
        "values": (critic[states, 0] + rng.normal(0, 0.3, order.shape)).astype(np.float32),
        "reference": _logprobs(reference, states, actions).astype(np.float32),
    }


def check_active(data: Arrays, case: Case) -> None:
    """Raise unless ratios and values lie beyond both sides of their clips."""
    at = data["mask"]
    ratio = np.exp(_logprobs(data["policy"], data["states"], data["actions"]) - data["old"])[at]
    assert (ratio < 1 - case.clip_low).mean() > 0.05, "no ratio at the lower clip"
    assert (ratio > 1 + case.clip_high).mean() > 0.05, "no ratio at the upper clip"
    moved = (data["critic"][data["states"], 0] - data["values"])[at]
    if case.value_clip is not None:
        assert (moved < -case.value_clip).mean() > 0.05, "no value at the lower clip"
        assert (moved > case.value_clip).mean() > 0.05, "no value at the upper clip"


def _logprobs(
    table: NDArray[Any], states: NDArray[Any], actions: NDArray[Any]
) -> NDArray[np.float64]:
    logits = table.astype(np.float64)[states] / TEMPERATURE
    chosen = np.take_along_axis(logits, actions[..., None], -1)[..., 0]
    found: NDArray[np.float64] = chosen - np.log(np.exp(logits).sum(-1))
    return found
