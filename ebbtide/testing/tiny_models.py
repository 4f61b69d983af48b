"""Published models of a few thousand random parameters, for tests of whatever loads one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from ebbtide.engines.policies import INDEX_NAME
from ebbtide.engines.publication import tied_names, write_publication
from ebbtide.wire import PolicyIndex, PolicyRef, pack_floats, pack_ints

VOCAB = 61
PROBE = tuple(range(3, 19))


@dataclass(frozen=True)
class Tiny:
    """A model and its publication."""

    model: Any
    index: PolicyIndex
    folder: Path

    @property
    def policy(self) -> PolicyRef:
        return self.index.policy

    @property
    def path(self) -> Path:
        """Of the index."""
        return self.folder / INDEX_NAME

    def logits(self, tokens: list[int]) -> torch.Tensor:
        """By a plain forward of transformers: shape (len(tokens), vocab)."""
        with torch.no_grad():
            logits: torch.Tensor = self.model(torch.tensor([tokens])).logits[0]
        return logits


def qwen2(*, tied: bool = True, head: int = 8) -> Qwen2Config:
    """Two layers, two key/value heads for four query heads, `head` numbers each."""
    return Qwen2Config(
        vocab_size=VOCAB,
        hidden_size=4 * head,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=tied,
    )


def publish_tiny(
    folder: Path,
    *,
    config: Any = None,
    seed: int = 0,
    n: int = 0,
    spoil: Callable[[Any], None] = lambda _: None,
) -> Tiny:
    """Make a random model and publish it as policy `n`; `spoil` may change it before.

    Weights are larger than fresh ones, so that wrong positions or masks show in the logits.
    """
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        build: Any = AutoModelForCausalLM.from_config
        model = build(config or qwen2()).eval()
        for parameter in model.parameters():
            parameter.mul_(8) if parameter.dim() > 1 else parameter.add_(0.1)
        spoil(model)
        probe = torch.tensor([PROBE])
        scores = torch.log_softmax(model(probe).logits[0, :-1].float(), dim=-1)
    folder.mkdir(parents=True, exist_ok=True)
    model.config.save_pretrained(folder)
    index = write_publication(
        folder,
        model.state_dict(),
        tied_names(model),
        policy_n=n,
        attempt=1,
        probe_tokens=pack_ints(PROBE),
        probe_logprobs=pack_floats(scores.gather(1, probe[0, 1:, None])[:, 0].numpy()),
    )
    return Tiny(model, index, folder)
