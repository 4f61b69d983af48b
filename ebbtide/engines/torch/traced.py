"""A decode step without Python: the model's operations are recorded once and then replayed.

A step of a few rows is a hundred small operations, and calling them from Python takes longer than
they do. The recording (torch.jit.trace) has the same operations in the same order, so it has the
same bits; it is used only after it has shown that, on other shapes than it was made with. See
docs/decisions/0008-decode-steps-are-replayed.md.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ebbtide.engines.torch import attention
from ebbtide.engines.torch.kv import Aim, KvRows
from ebbtide.engines.torch.sampling import Drawn, Noise, draw

_MADE_WITH = (5, 32)
_TRIED_WITH = ((1, 16), (2, 48), (8, 32))
"""(rows, window) of the steps."""
_MOST = (8, 48)

Inputs = tuple[Tensor, ...]


class Asked(NamedTuple):
    """A decode step of rows 0..n-1: `tokens` (n, 1) that stand at `positions` (n, 1).

    `rows` (n,) is 0..n-1, `keys` (window,) is 0..window-1; the noise is for n draws.
    """

    tokens: Tensor
    positions: Tensor
    rows: Tensor
    keys: Tensor
    noise: Noise


class Step(nn.Module):
    """One token a row through `model` and drawn, as the recording sees it: tensors, no numbers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """`inputs` as `flat` gives them; tokens and log-probabilities (n,)."""
        tokens, positions, rows, keys, words, counts, heat, *stored = inputs
        kv = KvRows.over(list(zip(stored[::2], stored[1::2], strict=True)))
        kv.aim = Aim(rows, positions, keys.shape[0], leading=True)
        out = self.model(
            input_ids=tokens,
            attention_mask=additive(keys <= positions[:, None, :, None], stored[0].dtype),
            position_ids=positions,
            past_key_values=kv,
            use_cache=True,
            logits_to_keep=1,
        )
        drawn = draw(out.logits[:, -1], Noise(words, counts, heat), greedy=False)
        return drawn.tokens, drawn.logprobs


def additive(allowed: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where a query sees a key, else minus infinity."""
    zeros = torch.zeros((), dtype=dtype, device=allowed.device)
    return torch.where(allowed, zeros, float("-inf"))


class TracedStep:
    """A recording that proved to be right. It reads the model's weights as they are when called."""

    def __init__(self, recording: Any) -> None:
        self._recording = recording

    def __call__(self, kv: KvRows, asked: Asked) -> Drawn:
        """Decode and draw; the keys and values of `asked.tokens` are written into `kv`."""
        # Optimising anew for each shape costs more than it gains.
        with torch.jit.optimized_execution(False):  # type: ignore[attr-defined]
            return Drawn(*self._recording(*flat(asked, kv)))


def flat(asked: Asked, kv: KvRows) -> Inputs:
    """What `Step` takes: of the step, of its noise, then key, value, key, ..."""
    *place, noise = asked
    return (*place, *noise, *kv.stored)


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
        asked, kv = self._step_of(*_MADE_WITH)
        return torch.jit.trace(self._step, flat(asked, kv), check_trace=False, strict=False)  # type: ignore[no-untyped-call]

    def has_same_bits(self, traced: TracedStep, rows: int, window: int) -> bool:
        """Whether what is drawn, and what is written, are the model's own."""
        asked, kv = self._step_of(rows, window)
        _, again = self._step_of(rows, window)
        expected, found = self._step(*flat(asked, kv)), traced(again, asked)
        pairs = zip([*expected, *kv.stored], [*found, *again.stored], strict=True)
        return all(torch.equal(a, b) for a, b in pairs)

    def _step_of(self, rows: int, window: int) -> tuple[Asked, KvRows]:
        """A step of `rows` rows of different lengths, and their history; always the same."""
        source = torch.Generator().manual_seed(rows * 1000 + window)
        device = self._model.device
        vocab = self._model.get_output_embeddings().weight.shape[0]
        at = torch.arange(rows, device=device)
        heat = torch.ones(rows, device=device)
        heat[::3] = 0.0
        asked = Asked(
            tokens=torch.randint(0, vocab, (rows, 1), generator=source).to(device),
            positions=(window - 1) - at[:, None] * 3,
            rows=at,
            keys=torch.arange(window, device=device),
            noise=Noise(at * 12345, at, heat),
        )
        return asked, self._history(source)

    def _history(self, source: torch.Generator) -> KvRows:
        drawn = [self._drawn(like, source) for like in self._like.stored]
        return KvRows.over(list(zip(drawn[::2], drawn[1::2], strict=True)))

    @staticmethod
    def _drawn(like: Tensor, source: torch.Generator) -> Tensor:
        shape = (_MOST[0], like.shape[1], _MOST[1], like.shape[3])
        return torch.randn(shape, generator=source).to(dtype=like.dtype, device=like.device)
