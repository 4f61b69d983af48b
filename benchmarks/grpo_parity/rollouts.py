"""Synthetic rollouts that both sides read, and the cases that they compute."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import TypeAdapter
from transformers import Qwen2Config, Qwen2ForCausalLM

from ebbtide.rl.advantages import group_advantages
from ebbtide.spec import Algorithm, PolicyGradientSpec

ROWS, GROUP, PROMPT, LIMIT, VOCABULARY = 24, 6, 9, 31, 101
AGGREGATIONS = {"token-mean": "dapo", "sequence-mean": "grpo", "dr-grpo": "dr_grpo"}


@dataclass(frozen=True)
class Case:
    """One comparison: `algorithm` in a job's words, `theirs` in those of TRL's `trainer`.

    `holes`: the mask leaves out tokens within answers, which not every trainer can. `weight_max`:
    another policy than the old one sampled, and weights of that difference are at most this.
    """

    name: str
    algorithm: dict[str, Any]
    theirs: dict[str, Any]
    trainer: str = "grpo"
    holes: bool = True
    temperature: float = 0.9
    group_size: int = GROUP
    limit: int = LIMIT
    weight_max: float | None = None

    @property
    def spec(self) -> PolicyGradientSpec:
        """The algorithm, checked."""
        found = TypeAdapter[Any](Algorithm).validate_python(self.algorithm)
        assert isinstance(found, PolicyGradientSpec)
        return found


def cases() -> list[Case]:
    """Every aggregation that TRL has too, with and without KL."""
    return [
        Case(
            f"{ours}{'+kl' if beta else ''}",
            {
                "type": "grpo",
                "aggregation": ours,
                "kl_coefficient": beta,
                "clip_low": 0.2,
                "clip_high": 0.28,
            },
            {
                "loss_type": theirs,
                "beta": beta,
                "epsilon": 0.2,
                "epsilon_high": 0.28,
                "use_bias_correction_kl": True,
            },
        )
        for ours, theirs in AGGREGATIONS.items()
        for beta in (0.0, 0.07)
    ]


def save_models(folder: Path) -> None:
    """Write the policy and a reference that differs from it."""
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        initializer_range=0.1,
    )
    for seed, name in enumerate(("policy", "reference")):
        torch.manual_seed(seed)
        Qwen2ForCausalLM(config).save_pretrained(folder / name)  # type: ignore[no-untyped-call]


def save_rollouts(folder: Path, current: NDArray[np.float32] | None = None) -> None:
    """Write rollouts.npz in the shapes that TRL uses: prompts padded left, completions right.

    `current`: the policy's log-probabilities, shape (ROWS, LIMIT); the old ones lie around
    them, so that ratios fall on both sides of the clip range.
    """
    rng = np.random.default_rng(7)
    prompts, lengths = rng.integers(2, PROMPT, ROWS), rng.integers(3, LIMIT, ROWS)
    lengths[0], lengths[1] = LIMIT, 1
    prompt_mask = np.arange(PROMPT)[None] >= PROMPT - prompts[:, None]
    completion_mask = np.arange(LIMIT)[None] < lengths[:, None]
    tool_mask = rng.random((ROWS, LIMIT)) < 0.8
    tool_mask[np.arange(ROWS), lengths - 1] = True
    rewards = rng.integers(0, 3, (ROWS // GROUP, GROUP)).astype(float)
    advantages = np.concatenate([group_advantages(row.tolist(), "group") for row in rewards])
    noise = rng.normal(0.0, 0.35, (ROWS, LIMIT))
    base = np.full((ROWS, LIMIT), -4.0) if current is None else current
    farther = np.random.default_rng(8).normal(0.0, 0.25, (ROWS, LIMIT))
    np.savez(
        folder / "rollouts.npz",
        prompt_ids=rng.integers(2, VOCABULARY, (ROWS, PROMPT)) * prompt_mask,
        prompt_mask=prompt_mask.astype(np.int64),
        completion_ids=rng.integers(2, VOCABULARY, (ROWS, LIMIT)) * completion_mask,
        completion_mask=completion_mask.astype(np.int64),
        tool_mask=tool_mask.astype(np.int64),
        advantages=advantages.astype(np.float32),
        old_per_token_logps=(base + noise).astype(np.float32),
        sampling_per_token_logps=(base + noise + farther).astype(np.float32),
    )


def save_cases(folder: Path, wanted: Sequence[Case]) -> None:
    """Write cases.json."""
    (folder / "cases.json").write_text(json.dumps([asdict(case) for case in wanted]))
