"""A decode step without Python: the model's operations are recorded once and then replayed.

A step of a few rows is a hundred small operations, and calling them from Python takes longer than
they do. The recording (torch.jit.trace) has the same operations in the same order, so it has the
same bits; it is used only after it has shown that, on other shapes than it was made with. See
docs/decisions/0008-decode-steps-are-replayed.md.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ebbtide.engines.torch import attention
from ebbtide.engines.torch.kv import Aim, KvRows

_MADE_WITH = (5, 32)
_TRIED_WITH = ((1, 16), (2, 48), (8, 32))
"""(rows, window) of the steps."""
_MOST = (8, 48)

Inputs = tuple[Tensor, ...]


class Step(nn.Module):
    """One token a row through `model`, as the recording sees it: tensors in, logits out."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, tokens: Tensor, positions: Tensor, mask: Tensor, rows: Tensor, *stored: Tensor
    ) -> Tensor:
        """`tokens`, `positions` (n, 1); `mask` (n, 1, 1, window); `stored`: key, value, key, ..."""
        kv = KvRows.over(list(zip(stored[::2], stored[1::2], strict=True)))
        kv.aim = Aim(rows, positions, mask.shape[3], leading=True)
        out = self.model(
            input_ids=tokens,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=kv,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: Tensor = out.logits
        return logits


class TracedStep:
    """A recording that proved to be right. It reads the model's weights as they are when called."""

    def __init__(self, recording: Any) -> None:
        self._recording = recording

    def __call__(self, kv: KvRows, tokens: Tensor, aim: Aim, mask: Tensor) -> Tensor:
        """Logits (n, 1, vocab)."""
        # Optimising anew for each shape costs more than it gains.
        with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            logits: Tensor = self._recording(tokens, aim.positions, mask, aim.rows, *kv.stored)
        return logits


def traced_step(model: Any, like: KvRows) -> TracedStep | None:
    """Record a step of `model`, whose rows are `like` those; None where that is not safe.

    Not safe are models whose Python code looks at values (experts that are chosen by a token),
    and those whose recording gives other bits on any of the shapes that are tried.
    """
    if like.geometry is None:
        return None
    trial = _Trial(model, like)
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            recording = trial.record()
        if any(_doubts(warning) for warning in said):
            return None
        found = TracedStep(recording)
        same = all(trial.has_same_bits(found, *shape) for shape in _TRIED_WITH)
    except RuntimeError:  # what torch raises for all that it cannot record or replay
        return None
    return found if same else None


def _doubts(warning: warnings.WarningMessage) -> bool:
    """Whether Python looked at a value. Our attention looks at the number of heads, no more."""
    ours = Path(warning.filename) == Path(attention.__file__)
    looked = issubclass(warning.category, torch.jit.TracerWarning)  # type: ignore[attr-defined]
    return looked and not ours


class _Trial:
    """Steps of `model` over random histories in rows `like` those."""

    def __init__(self, model: Any, like: KvRows) -> None:
        self._model, self._like = model, like
        self._step = Step(model).eval()

    def record(self) -> Any:
        """Run one step, recorded."""
        inputs = self._inputs(*_MADE_WITH)
        return torch.jit.trace(self._step, inputs, check_trace=False, strict=False)  # type: ignore[no-untyped-call]

    def has_same_bits(self, traced: TracedStep, rows: int, window: int) -> bool:
        """Whether logits, and what is written, are those of the model itself."""
        tokens, positions, mask, at, *stored = self._inputs(rows, window)
        again = [each.clone() for each in stored]
        expected = self._step(tokens, positions, mask, at, *stored)
        kv = KvRows.over(list(zip(again[::2], again[1::2], strict=True)))
        found = traced(kv, tokens, Aim(at, positions, window, leading=True), mask)
        pairs = zip([expected, *stored], [found, *again], strict=True)
        return all(torch.equal(a, b) for a, b in pairs)

    def _inputs(self, rows: int, window: int) -> Inputs:
        """A step of `rows` rows of different lengths."""
        source = torch.Generator().manual_seed(rows * 1000 + window)
        device, dtype = self._model.device, self._model.dtype
        vocab = self._model.get_output_embeddings().weight.shape[0]
        tokens = torch.randint(0, vocab, (rows, 1), generator=source).to(device)
        at = torch.arange(rows, device=device)
        positions = (window - 1) - at[:, None] * 3
        seen = torch.arange(window, device=device) <= positions[:, None, :, None]
        mask = torch.where(seen, 0.0, float("-inf")).to(dtype)
        return tokens, positions, mask, at, *self._history(source)

    def _history(self, source: torch.Generator) -> Iterator[Tensor]:
        for stored in self._like.stored:
            shape = (_MOST[0], stored.shape[1], _MOST[1], stored.shape[3])
            drawn = torch.randn(shape, generator=source)
            yield drawn.to(dtype=stored.dtype, device=stored.device)
