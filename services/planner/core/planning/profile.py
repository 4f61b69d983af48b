"""What one actor type can do: seconds per output token by batch and context, and what else costs.

A profile is read from a file (`ebbtide.profiles`); the planner corrects it with what actors report
(`Profile.refine`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ebbtide.profiles import ProfileFile, check_profile, read_profile_file, rising

Floats = npt.NDArray[np.floating[Any]]

LARGEST_CORRECTION = 4.0
"""A report never makes a batch look more than this much slower or faster than measured."""
WEIGHT_OF_A_REPORT = 0.1


class Observation(NamedTuple):
    """An actor's report: `seconds` per token at a batch that holds `context` tokens together."""

    batch: float
    context: float
    seconds: float


def read_profile(data: bytes) -> Profile:
    """Decode and check a profile file; raises Refused that names the field."""
    return make_profile(read_profile_file(data))


def make_profile(file: ProfileFile) -> Profile:
    """Check `file`; raises Refused that names the field."""
    grid = check_profile(file)
    n = len(file.batches)
    return Profile(file=file, grid=grid, factors=np.ones(n), seen=np.zeros(n, bool))


@dataclass(frozen=True)
class Profile:
    """A checked profile with its corrections.

    grid (batches, contexts): seconds, monotone in both. factors (batches,): correction by reports;
    only those of `seen` batches are meant, the others are drawn between them.
    """

    file: ProfileFile
    grid: Floats
    factors: Floats
    seen: npt.NDArray[np.bool_]

    @property
    def startup_seconds(self) -> float:
        """From nothing to serving."""
        return sum(self.file.startup.values())

    def tpot(self, batch: npt.ArrayLike, context: npt.ArrayLike) -> Floats:
        """Seconds for one token of each of `batch` samples that hold `context` tokens together.

        Bilinear between measured points; beyond the last ones the last slope goes on; below the
        first ones it is flat.
        """
        b, c = np.broadcast_arrays(np.asarray(batch, float), np.asarray(context, float))
        return _bilinear(self._corrected(), self.file.batches, self.file.contexts, b, c)

    def refine(self, observations: Iterable[Observation]) -> Profile:
        """A profile whose factor of each reported batch moved towards what was observed."""
        factors, seen = self._all_factors(), self.seen.copy()
        axis = np.log(self.file.batches)
        for one in observations:
            if not (one.batch >= 1 and np.isfinite(one.seconds) and one.seconds > 0):
                continue  # an actor that decodes nothing says nothing
            at = int(np.abs(axis - np.log(one.batch)).argmin())
            measured = _bilinear(
                self.grid, self.file.batches, self.file.contexts, *map(np.asarray, one[:2])
            )
            weight = WEIGHT_OF_A_REPORT if seen[at] else 0.5
            moved = factors[at] ** (1 - weight) * (one.seconds / float(measured)) ** weight
            factors[at] = np.clip(moved, 1 / LARGEST_CORRECTION, LARGEST_CORRECTION)
            seen[at] = True
        return replace(self, factors=factors, seen=seen)

    def move_seconds(self, tokens: float) -> float:
        """To hand over the KV of `tokens`, or to compute them again, whichever is faster."""
        return min(self.handover_seconds(tokens), self.recompute_seconds(tokens))

    def handover_seconds(self, tokens: float) -> float:
        """To move the KV of `tokens` to another actor; infinite where there is no path."""
        if self.file.handover_bytes_per_second == 0:
            return float("inf")
        return tokens * self.file.kv_bytes_per_token / self.file.handover_bytes_per_second

    def recompute_seconds(self, tokens: float) -> float:
        """To prefill `tokens` anew."""
        return tokens * self.file.prefill_seconds_per_token

    def _corrected(self) -> Floats:
        return rising(self.grid * self._all_factors()[:, None])

    def _all_factors(self) -> Floats:
        if not self.seen.any():
            return self.factors.copy()
        axis = np.log(self.file.batches)
        return np.interp(axis, axis[self.seen], self.factors[self.seen])


def _bilinear(
    grid: Floats, batches: tuple[int, ...], contexts: tuple[int, ...], b: Floats, c: Floats
) -> Floats:
    i, v = _place(batches, b)
    j, w = _place(contexts, c)
    i2, j2 = np.minimum(i + 1, len(batches) - 1), np.minimum(j + 1, len(contexts) - 1)
    low = grid[i, j] * (1 - w) + grid[i, j2] * w
    high = np.maximum(grid[i2, j] * (1 - w) + grid[i2, j2] * w, low)
    result: Floats = low * (1 - v) + high * v
    return result


def _place(axis: tuple[int, ...], at: Floats) -> tuple[npt.NDArray[np.intp], Floats]:
    """The cell of each point and where in it (above 1 beyond the last measured point)."""
    points = np.asarray(axis, float)
    if len(points) == 1:
        return np.zeros(at.shape, np.intp), np.zeros(at.shape)
    cell = np.clip(np.searchsorted(points, at, side="right") - 1, 0, len(points) - 2)
    share = (at - points[cell]) / (points[cell + 1] - points[cell])
    return cell, np.maximum(share, 0.0)
