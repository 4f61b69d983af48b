"""The rollouts and the model that both sides read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

GROUPS, GROUP, PROMPT, LIMIT, VOCABULARY = 8, 8, 64, 384, 2048
ROWS = GROUPS * GROUP
TRL_ROWS = 8
"""Rows of TRL's micro-batch; ours have as many positions: TRL_ROWS * (PROMPT + LIMIT)."""
UPDATES = 3
"""Of which the first does not count."""


def save(folder: Path) -> None:
    """Write `policy`, and rollouts.npz in TRL's shapes: completions padded on the right."""
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=256,
        intermediate_size=768,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=4,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    Qwen2ForCausalLM(config).save_pretrained(folder / "policy")  # type: ignore[no-untyped-call]
    rng = np.random.default_rng(11)
    lengths = np.clip(rng.lognormal(np.log(60), 0.9, ROWS).astype(int), 1, LIMIT)
    lengths[0] = LIMIT
    mask = np.arange(LIMIT)[None] < lengths[:, None]
    prompts = np.repeat(rng.integers(2, VOCABULARY, (GROUPS, PROMPT)), GROUP, axis=0)
    np.savez(
        folder / "rollouts.npz",
        prompt_ids=prompts,
        prompt_mask=np.ones_like(prompts),
        completion_ids=rng.integers(2, VOCABULARY, (ROWS, LIMIT)) * mask,
        completion_mask=mask.astype(np.int64),
        advantages=rng.normal(size=ROWS).astype(np.float32),
    )
