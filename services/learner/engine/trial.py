"""Whether this model may read shared rows: its architecture is asked, and then it is tried.

A model whose layers see something else than all earlier positions (a window, a recurrent state),
or that takes no positions, would silently compute another text.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch

from services.learner.core.samples import MicroBatch, Sample, pad
from services.learner.core.sharing import pack
from services.learner.engine.policy import Policy
from services.learner.engine.updates import on_device

_TOLERANCE, _COARSE = 1e-3, 5e-2
_PROMPT, _ANSWERS = 12, (3, 9, 1)


def shared_width(policy: Policy, device: torch.device, *, coarse: bool) -> int:
    """The model's hidden size if it may read shared rows, else 0. All ranks call it together.

    `coarse`: it computes in bfloat16.
    """
    module: Any = policy.module
    config = module.config.get_text_config()
    if not _sees_everything(config) or not _takes_positions(module):
        return 0
    hidden = int(config.hidden_size)
    samples = _samples(int(config.vocab_size))
    apart, together = pad(samples), pack(samples, hidden=1 << 20)
    assert together.branch is not None, "siblings share where attention costs nothing"
    gap = (_score(policy, apart, device) - _score(policy, together, device)).abs().max()
    return hidden if float(gap) <= (_COARSE if coarse else _TOLERANCE) else 0


def _sees_everything(config: Any) -> bool:
    kinds = getattr(config, "layer_types", None)
    if kinds is not None:
        return set(kinds) == {"full_attention"}
    return getattr(config, "sliding_window", None) is None


def _takes_positions(module: Any) -> bool:
    taken = inspect.signature(module.forward).parameters
    return {"attention_mask", "position_ids"} <= set(taken)


def _samples(vocab: int) -> list[Sample]:
    words = (np.arange(1, 64) * 7919) % vocab
    prompt = words[:_PROMPT]
    return [_sample(prompt, words[-n:]) for n in _ANSWERS]


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
