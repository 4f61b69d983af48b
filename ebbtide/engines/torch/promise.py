"""Reference mode's premise, tried on this model and machine before anything is promised.

Equal bits rest on one property: at a fixed shape a row's result depends neither on the row it
sits in nor on its neighbours. Kernels mostly have it; some lose it at sizes that do not fill
vectors (seen on a CPU: heads of 10 floats; an activation over 4 rows of 43). So it is tried.
"""

from __future__ import annotations

import numpy as np
import torch

from ebbtide.engines.torch.decoder import Limits, make_storage
from ebbtide.engines.torch.runner import Ints, Runner
from ebbtide.errors import Refused

STEPS = 6


def check_rows(runner: Runner, limits: Limits) -> None:
    """Decode the same texts in two orders of rows; raises Refused unless all bits agree."""
    rng = np.random.default_rng(0)
    texts = rng.integers(0, runner.vocab, size=(limits.slots, STEPS))
    # Every text changes its place: what is peculiar to one place, such as the last, shows.
    order = np.roll(np.arange(limits.slots), 1)
    straight, mixed = _decode(runner, limits, texts), _decode(runner, limits, texts[order])
    if not torch.equal(straight[torch.from_numpy(order).to(straight.device)], mixed):
        detail = "this model's results depend on the row of a batch here: no reference mode"
        raise Refused(detail, field="/decode/referenceMode")


def _decode(runner: Runner, limits: Limits, texts: Ints) -> torch.Tensor:
    """Logits (slots, steps, vocab) of decoding `texts` side by side."""
    kv = make_storage(limits).live
    rows = np.arange(limits.slots)
    steps = []
    for step in range(texts.shape[1]):
        tokens, positions = texts[:, step : step + 1].copy(), np.full((limits.slots, 1), step)
        logits = runner.forward(kv, rows, tokens, positions, window=kv.width)
        steps.append(logits.clone())
    return torch.cat(steps, dim=1)
