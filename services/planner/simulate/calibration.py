"""Profiles computed from shapes and hardware, and how well that predicts what was measured.

Seconds of one token of each of b samples that hold C tokens together, on t GPUs:

    sqrt((weights / (t * bandwidth * e))^2 + (2 * parameters * b / (t * flops * u))^2)
      + layers * per_layer + C * kv_bytes / (t * bandwidth * k) + (t > 1) * 2 * layers * all_reduce

The root joins the two regimes smoothly: reading weights below some hundred samples, computing
above. `Terms` are fitted to one part of the tables and checked on the rest (`left_out`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ebbtide.errors import Refused
from ebbtide.profiles import ProfileFile
from services.planner.core.planning.profile import Profile, make_profile
from services.planner.simulate.tables import CONTEXTS, GPUS, LINEAR, MODELS, SINGLE, TOKENS

Floats = npt.NDArray[np.floating[Any]]
Key = tuple[str, str, int]

BATCHES = (1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512)
_TOP_CONTEXT = 4_000_000
_SPARE_GB = 2.0
_MEMORY_SHARE = 0.9


@dataclass(frozen=True)
class Terms:
    """Shares of the data sheet's bandwidth (weights, KV) and FLOPS; `per_layer` in seconds."""

    weights: float = 0.83
    flops: float = 0.62
    kv: float = 0.6
    per_layer: float = 80e-6


SERVING = Terms()
"""Of a serving engine with captured graphs. `per_layer` lies between Vidur's kernels alone (35 us)
and what fits vLLM 0.6.3 (117 us): assumed."""


class Compared(NamedTuple):
    """One published figure and what the formula says of it, in seconds."""

    name: str
    measured: float
    predicted: float

    @property
    def error(self) -> float:
        """Predicted over measured, minus 1."""
        return self.predicted / self.measured - 1.0


def seconds(  # noqa: PLR0917 - the formula has six arguments
    model: str, gpu: str, tensor_parallel: int, batch: Floats, context: Floats, terms: Terms
) -> Floats:
    """The formula above; `batch` and `context` broadcast."""
    shape, card, t = MODELS[model], GPUS[gpu], tensor_parallel
    bandwidth = card.bandwidth * 1e9 * t
    read = 2e9 * shape.billions / (bandwidth * terms.weights)
    computed = 2e9 * shape.billions * batch / (card.tflops * 1e12 * t * terms.flops)
    kv = context * shape.kv_bytes / (bandwidth * terms.kv)
    joined = 2 * shape.layers * card.all_reduce if t > 1 else 0.0
    total: Floats = np.hypot(read, computed) + shape.layers * terms.per_layer + kv + joined
    return total


def computed_profile(
    model: str,
    gpu: str,
    *,
    tensor_parallel: int = 1,
    start: float = 0.0,
    catch_up: float = 0.0,
    network: float = 10e9,
    terms: Terms = SERVING,
) -> Profile:
    """The profile of this model on so many of these GPUs; `network` in bytes a second.

    Raises Refused where the model is unknown or does not fit.
    """
    _known(model, gpu)
    contexts = (0, _TOP_CONTEXT)
    grid = seconds(
        model,
        gpu,
        tensor_parallel,
        np.asarray(BATCHES, float)[:, None],
        np.asarray(contexts),
        terms,
    )
    shape, card = MODELS[model], GPUS[gpu]
    free = card.memory * _MEMORY_SHARE * tensor_parallel - 2 * shape.billions - _SPARE_GB
    if free <= 0:
        raise Refused(f"{model} does not fit on {tensor_parallel} x {gpu}", field="/tensorParallel")
    flops = card.tflops * 1e12 * tensor_parallel * 0.5
    return make_profile(
        ProfileFile(
            version=1,
            engine="computed",
            model=model,
            gpu=gpu,
            tensor_parallel=tensor_parallel,
            batches=BATCHES,
            contexts=contexts,
            seconds=tuple(tuple(row) for row in grid.tolist()),
            prefill_seconds_per_token=2e9 * shape.billions / flops,
            startup={"start": start},
            wake_seconds=start,
            catch_up_seconds=catch_up,
            kv_tokens=int(free * 1e9 / shape.kv_bytes),
            kv_bytes_per_token=shape.kv_bytes,
            handover_bytes_per_second=network,
        )
    )


def _known(model: str, gpu: str) -> None:
    if model not in MODELS:
        raise Refused(f"unknown model {model}, one of: {', '.join(MODELS)}", field="/model")
    if gpu not in GPUS:
        raise Refused(f"unknown GPU {gpu}, one of: {', '.join(GPUS)}", field="/gpu")


FITTED_TP, LEFT_OUT_TP = (1, 2, 8), 4
FITTED_MODELS = ("qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-14b")
DECODE_TOKENS = 128
"""Larger batches are those of prefill; the formula errs there by up to a sixth."""


def left_out() -> list[Compared]:
    """Every row of the tables that the fit did not see, at batches that decode."""
    return [*_single_left_out(), *_linear_left_out()]


def _linear_left_out() -> Iterator[Compared]:
    for gpu in ("h100", "a100"):
        keys = [key for key in LINEAR if key[1] == gpu]
        terms = fit_linear(key for key in keys if key[2] in FITTED_TP)
        for key in keys:
            if key[2] == LEFT_OUT_TP:
                yield from _linear(key, terms)


def _linear(key: Key, terms: Terms) -> Iterator[Compared]:
    for tokens, measured, said in zip(TOKENS, LINEAR[key], linear(key, terms), strict=True):
        if tokens <= DECODE_TOKENS:
            yield Compared(f"{key[0]} {key[1]} TP{key[2]}, {tokens} tokens", measured / 1e3, said)


def linear(key: Key, terms: Terms) -> list[float]:
    """Seconds of the linear layers at each of `TOKENS`: no KV, no all-reduce."""
    shape = MODELS[key[0]]
    alone = seconds(key[0], key[1], key[2], np.asarray(TOKENS, float), np.zeros(1), terms)
    joined = 2 * shape.layers * GPUS[key[1]].all_reduce if key[2] > 1 else 0.0
    found: list[float] = (alone - joined).tolist()
    return found


def fit_linear(keys: Iterable[Key]) -> Terms:
    """The terms with the smallest squared relative error, by search over a grid."""
    rows = [(key, np.asarray(LINEAR[key]) / 1e3) for key in keys]
    grid = product(
        np.arange(0.76, 1.0, 0.02), np.arange(0.5, 0.8, 0.02), np.arange(0.01, 0.06, 0.005)
    )

    def error(terms: Terms) -> float:
        each = [np.square(np.asarray(linear(k, terms)) / seen - 1).mean() for k, seen in rows]
        return float(np.mean(each))

    candidates = (Terms(float(w), float(u), 0.6, float(f) * 1e-3) for w, u, f in grid)
    return min(candidates, key=error)


def _single_left_out() -> Iterator[Compared]:
    terms = fit_single()
    for model, rates in SINGLE.items():
        for context, rate in zip(CONTEXTS, rates, strict=False):
            if model in FITTED_MODELS and context == CONTEXTS[0]:
                continue
            said = seconds(model, "a100", 1, np.ones(1), np.asarray([float(context)]), terms)
            yield Compared(f"{model} a100, {context} context", 1 / rate, float(said[0]))


def fit_single() -> Terms:
    """Bandwidth and time per layer from three sizes at an empty context (least squares)."""
    shapes = [MODELS[name] for name in FITTED_MODELS]
    seen = np.asarray([1 / SINGLE[name][0] for name in FITTED_MODELS])
    columns = np.asarray([(2e9 * s.billions, s.layers) for s in shapes])
    per_byte, per_layer = np.linalg.lstsq(columns / seen[:, None], np.ones(len(seen)), rcond=None)[
        0
    ]
    share = 1 / (per_byte * GPUS["a100"].bandwidth * 1e9)
    return replace(SERVING, weights=float(share), per_layer=float(per_layer), kv=0.42)
