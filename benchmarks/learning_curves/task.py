"""The task, its reward and the supervised start: write a list of letters backwards."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

PAD, STOP, ASK = 0, 1, 2
LETTERS = range(3, 11)
SHORTEST, LONGEST = 2, 4
LIMIT = LONGEST + 2
"""Tokens of an answer: one more than the longest right one with its end."""
_SLIP = 0.35
_LESSONS, _BATCH = 150, 64
_IGNORED = -100


def prompts(rng: random.Random, count: int) -> list[list[int]]:
    """Lists of letters, each ended by ASK."""
    return [
        [*rng.choices(LETTERS, k=rng.randint(SHORTEST, LONGEST)), ASK]  # a task needs no secrecy
        for _ in range(count)
    ]


def reward(prompt: Sequence[int], answer: Sequence[int]) -> float:
    """Share of places that are right, over the longer of the answer and what was wanted."""
    wanted = [*reversed(prompt[:-1]), STOP]
    right = sum(a == b for a, b in zip(answer, wanted, strict=False))
    return right / max(len(answer), len(wanted))


def start(folder: Path, seed: int) -> Path:
    """Write a small model that has seen answers of which a third of the letters is wrong."""
    torch.manual_seed(seed)
    rng = random.Random(f"{seed}/lessons")  # noqa: S311 - a task needs no secrecy
    config = Qwen2Config(
        vocab_size=LETTERS.stop,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=True,
        pad_token_id=PAD,
        eos_token_id=STOP,
    )
    model = Qwen2ForCausalLM(config)
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    for _ in range(_LESSONS):
        tokens, labels = _lesson(rng)
        model(input_ids=tokens, labels=labels).loss.backward()
        optimiser.step()
        optimiser.zero_grad()
    model.save_pretrained(folder)
    return folder


def _lesson(rng: random.Random) -> tuple[torch.Tensor, torch.Tensor]:
    rows = [(prompt, _sloppy(rng, prompt)) for prompt in prompts(rng, _BATCH)]
    width = max(len(prompt) + len(answer) for prompt, answer in rows)
    tokens = torch.full((_BATCH, width), PAD)
    labels = torch.full((_BATCH, width), _IGNORED)
    for i, (prompt, answer) in enumerate(rows):
        whole = torch.tensor([*prompt, *answer])
        tokens[i, : len(whole)] = whole
        labels[i, len(prompt) : len(whole)] = whole[len(prompt) :]
    return tokens, labels


def _sloppy(rng: random.Random, prompt: Sequence[int]) -> list[int]:
    right = list(reversed(prompt[:-1]))
    return [rng.choice(LETTERS) if rng.random() < _SLIP else letter for letter in right] + [STOP]
