"""The model and the samples: a 0.3M-parameter Qwen2, 32 prompts of 8, log-normal lengths."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, Qwen2Config

from ebbtide.engines.publication import tied_names, write_publication
from ebbtide.wire import PolicyIndex

SAMPLES, GROUP, MOST, VOCAB = 256, 8, 128, 80
WIDTH = MOST + 64
PATIENCE = 300.0
"""Seconds for one batch, on whatever machine."""


@dataclass(frozen=True)
class Work:
    """What is to be drawn: sample i has prompt i // GROUP and `lengths[i]` tokens."""

    prompts: Sequence[Sequence[int]]
    lengths: NDArray[np.int64]

    @property
    def tokens(self) -> int:
        return int(self.lengths.sum())


def make_work(seed: int) -> Work:
    """Prompts of 6 to 54 tokens, responses with a median of 64, at most 128, given as limits."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(6, 55, size=SAMPLES // GROUP)
    prompts = [[int(t) for t in rng.integers(2, VOCAB, size=size)] for size in sizes]
    lengths = np.exp(rng.normal(np.log(64), 0.45, size=SAMPLES)).astype(np.int64)
    return Work(prompts, lengths.clip(1, MOST))


def build_model(dtype: torch.dtype, *, seed: int = 0) -> Any:
    """Random weights, three times as large as fresh ones: the distributions are not flat."""
    config = Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=128,
        intermediate_size=256,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
    )
    torch.manual_seed(seed)
    build: Any = AutoModelForCausalLM.from_config
    model = build(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3) if parameter.dim() > 1 else parameter.add_(0)
    return model.to(dtype)


def publish(model: Any, folder: Path, n: int) -> PolicyIndex:
    """Policy `n`, without a probe: what is measured here scores more than one text."""
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    return write_publication(
        folder,
        model.state_dict(),
        tied_names(model),
        policy_n=n,
        attempt=1,
        probe_tokens=b"",
        probe_logprobs=b"",
    )
