"""What this model can do, tried out before the job begins: rows of several samples, compilation.

Whether it may read such rows its architecture is asked, and then it is tried.

A model whose layers see something else than all earlier positions (a window, a recurrent state),
or that takes no positions, would silently compute another text.
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import torch

from ebbtide.errors import Refused
from services.learner.core.samples import MicroBatch, Sample, pad
from services.learner.core.sharing import Rows
from services.learner.engine.optimiser import local
from services.learner.engine.policy import Policy, Scored
from services.learner.engine.updates import Batch, accumulate, on_device

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


def check_compiled(policy: Policy, device: torch.device, *, coarse: bool) -> None:
    """Compile the layers and compare them with themselves as they are; raises Refused.

    All ranks call it together. Forward and backward: each is compiled when it is first needed.
    """
    from torch._dynamo.exc import TorchDynamoException  # noqa: PLC0415 - takes seconds to import

    module: Any = policy.module
    batch = on_device(pad(_samples(int(module.config.get_text_config().vocab_size))), device)
    with torch.compiler.set_stance("force_eager"):
        plain = _learnt(policy, batch)
    try:
        compiled = _learnt(policy, batch)
    except TorchDynamoException as error:
        why = " ".join(str(error).splitlines()[:2])
        raise Refused(
            f"the model cannot be compiled here: {why}; leave learner.compile off (on a CPU"
            " torch.compile needs a C++ compiler)",
            field="/learner/compile",
        ) from error
    gap = max(float((a - b).abs().max()) for a, b in zip(plain, compiled, strict=True))
    if not gap <= (_COARSE if coarse else _TOLERANCE):
        raise Refused(
            f"the compiled model differs from the model by {gap:.2g}: leave learner.compile off",
            field="/learner/compile",
        )


def _learnt(policy: Policy, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
    """Log-probabilities, and the norm of their mean's gradient, which is dropped."""
    found: list[torch.Tensor] = []

    def losses_of(_: int, scored: Scored) -> torch.Tensor:
        found.append(scored.logprobs.detach())
        return scored.logprobs / len(scored.logprobs)

    accumulate(policy, [batch], temperature=1.0, losses_of=losses_of)
    learning = [p.grad for p in policy.module.parameters() if p.grad is not None]
    norm = torch.nn.utils.get_total_norm([local(grad) for grad in learning])
    policy.module.zero_grad(set_to_none=True)
    return found[0], norm


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
