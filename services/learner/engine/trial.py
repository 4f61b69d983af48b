"""Whether this model may read rows of several samples: its architecture is asked, and then it is tried.

A model whose layers see something else than all earlier positions (a window, a recurrent state),
or that takes no positions, would silently compute another text.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch

from services.learner.core.samples import MicroBatch, Sample, pad
from services.learner.core.sharing import Rows
from services.learner.engine.policy import Policy
from services.learner.engine.updates import on_device

_TOLERANCE, _COARSE = 1e-3, 5e-2
_STARTS, _PROMPTS, _ANSWERS = (0, 20, 30), (12, 5, 6), ((3, 9, 1), (4, 2), (2,))


def shared_width(policy: Policy, device: torch.device, *, coarse: bool) -> int:
    """The model's hidden size if it may read rows of several samples, else 0.

    All ranks call it together. `coarse`: it computes in bfloat16.
    """
    module: Any = policy.module
    config = module.config.get_text_config()
    if not _sees_everything(config) or not _takes_positions(module):
        return 0
    samples = _samples(int(config.vocab_size))
    apart, together = pad(samples), Rows(hidden=1 << 20, share=True, fill=True).of(samples)
    assert together.tokens.shape[0] == 2, "siblings share where attention costs nothing"
    gap = (_score(policy, apart, device) - _score(policy, together, device)).abs().max()
    return int(config.hidden_size) if float(gap) <= (_COARSE if coarse else _TOLERANCE) else 0


def _sees_everything(config: Any) -> bool:
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return set(kinds) == {"full_attention"}
    return getattr(config, "sliding_window", None) is None


def _takes_positions(module: Any) -> bool:
    taken = inspect.signature(module.forward).parameters
    return {"attention_mask", "position_ids"} <= set(taken)


def _samples(vocab: int) -> list[Sample]:
    """One tree that fills a row, and two that fill another together."""
    words = (np.arange(1, 64) * 7919) % vocab
    prompts = [words[start : start + n] for start, n in zip(_STARTS, _PROMPTS, strict=True)]
    return [
        _sample(prompt, words[-n:])
        for prompt, answers in zip(prompts, _ANSWERS, strict=True)
        for n in answers
    ]


def _sample(prompt: Any, answer: Any) -> Sample:
    n = len(answer)
    return Sample(
        tokens=np.concatenate([prompt, answer]).astype(np.int64),
        chosen=np.arange(len(prompt), len(prompt) + n),
        logprobs=np.zeros(n, np.float32),
        advantage=0.0,
        weight=0.0,
        prompt=len(prompt),
    )


@torch.no_grad()
def _score(policy: Policy, batch: MicroBatch, device: torch.device) -> torch.Tensor:
    put = on_device(batch, device)
    scored = policy.score(put.tokens, put.where, put.targets, temperature=1.0, shared=put.shared)
    return scored.logprobs
