"""Group-relative advantages.

GRPO (arXiv 2402.03300 section 4.1), Dr. GRPO (arXiv 2503.20783), RLOO (arXiv 2402.14740).

Who calls it: the planner when it freezes a batch. It must not know how a reward came about.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from ebbtide.errors import Refused

EPSILON = 1e-4
SCALES = ("group", "none", "leave-one-out", "raw")


def group_advantages(values: Sequence[float], scale: str) -> list[float]:
    """Advantage of each valued sample of one group, in the order given.

    `values`: total rewards of the samples that have one (invalid and abandoned ones are not
    part of the baseline). `scale`: "group" divides by the group's sample standard deviation
    plus 1e-4, as TRL does; "none" only subtracts the mean; "leave-one-out" subtracts the mean of
    the others; "raw" leaves the values as they are. But for raw, a group whose values are all
    equal gives exact zeros, so that "no variance" never depends on rounding.
    """
    if scale not in SCALES:
        raise Refused(f"unknown scale {scale!r}; use one of {SCALES}", field="/scale")
    if not all(math.isfinite(value) for value in values):
        raise Refused("every value must be finite; an error is never a value", field="/values")
    if scale == "raw":
        return list(map(float, values))
    if len(values) < 2 or min(values) == max(values):
        return [0.0] * len(values)
    array = np.asarray(values, dtype=np.float64)
    centred = array - array.mean()
    if scale == "group":
        centred = centred / (array.std(ddof=1) + EPSILON)
    if scale == "leave-one-out":
        centred = centred * (len(values) / (len(values) - 1))
    return [float(value) for value in centred]
