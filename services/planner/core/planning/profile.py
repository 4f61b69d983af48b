"""What one actor type can do: seconds per output token by batch and context, and what else costs.

A profile is a JSON file (`ProfileFile`), measured once per engine, GPU and tensor-parallel degree.
The planner corrects it with what actors report (`Profile.refine`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from ebbtide.errors import Refused

Floats = npt.NDArray[np.floating[Any]]

LARGEST_CORRECTION = 4.0
"""A report never makes a batch look more than this much slower or faster than measured."""
WEIGHT_OF_A_REPORT = 0.1
LARGEST_DROP = 0.5
"""A larger batch may be measured faster by noise and kernel shapes, but never by this share."""


class ProfileFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file; all times in seconds.

    seconds[i][j]: one token of each of batches[i] samples, which hold contexts[j] tokens together.
    startup: by stage, in order.
    """

    version: Literal[1]
    engine: str
    model: str
    gpu: str
    tensor_parallel: int
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]
    prefill_seconds_per_token: float
    startup: dict[str, float]
    wake_seconds: float
    catch_up_seconds: float
    kv_tokens: int
    kv_bytes_per_token: int
    handover_bytes_per_second: float


class Observation(NamedTuple):
    """An actor's report: `seconds` per token at a batch that holds `context` tokens together."""

    batch: float
    context: float
    seconds: float


def read_profile(data: bytes) -> Profile:
    """Decode and check a profile file; raises Refused that names the field."""
    try:
        file = msgspec.json.decode(data, type=ProfileFile)
    except msgspec.DecodeError as error:
        raise Refused(f"not a profile of version 1: {error}") from None
    return make_profile(file)


def make_profile(file: ProfileFile) -> Profile:
    """Check `file`; raises Refused that names the field.

    Measured times that fall as the load rises (noise, kernel shapes) are lifted to the running
    maximum; a fall by more than half is a mistake of the measurement and is refused.
    """
    _check_axis(file.batches, "batches")
    _check_axis(file.contexts, "contexts")
    _check_numbers(file)
    grid = _grid(file)
    n = len(file.batches)
    return Profile(file=file, grid=_rising(grid), factors=np.ones(n), seen=np.zeros(n, bool))


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
        return _rising(self.grid * self._all_factors()[:, None])

    def _all_factors(self) -> Floats:
        if not self.seen.any():
            return self.factors.copy()
        axis = np.log(self.file.batches)
        return np.interp(axis, axis[self.seen], self.factors[self.seen])


def _rising(grid: Floats) -> Floats:
    up: Floats = np.maximum.accumulate(np.maximum.accumulate(grid, axis=0), axis=1)
    return up


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


def _check_axis(axis: tuple[int, ...], name: str) -> None:
    if not axis or axis[0] < (name == "batches") or any(a >= b for a, b in pairwise(axis)):
        raise Refused(f"{name} must rise and start at 1 or more, got {axis}", field=f"/{name}")


def _check_numbers(file: ProfileFile) -> None:
    if file.kv_tokens < 1:
        raise Refused(
            "kv_tokens must be at least 1: the tokens that fit at once", field="/kv_tokens"
        )
    for name in (
        "prefill_seconds_per_token",
        "wake_seconds",
        "catch_up_seconds",
        "kv_bytes_per_token",
        "handover_bytes_per_second",
    ):
        if not 0 <= getattr(file, name) < float("inf"):
            raise Refused(f"{name} must be a finite number, 0 or more", field=f"/{name}")
    if not all(0 <= seconds < float("inf") for seconds in file.startup.values()):
        raise Refused("startup needs finite seconds per stage, 0 or more", field="/startup")


def _grid(file: ProfileFile) -> Floats:
    shape = (len(file.batches), len(file.contexts))
    if len(file.seconds) != shape[0] or any(len(row) != shape[1] for row in file.seconds):
        raise Refused(f"seconds must have {shape[0]} rows of {shape[1]} numbers", field="/seconds")
    grid = np.asarray(file.seconds, float)
    holes = np.argwhere(~(np.isfinite(grid) & (grid > 0)))
    if len(holes):
        i, j = holes[0]
        raise Refused("each point needs positive seconds: measure it", field=f"/seconds/{i}/{j}")
    falls = np.argwhere(grid < _rising(grid) * LARGEST_DROP)
    if len(falls):
        i, j = falls[0]
        raise Refused(
            "a smaller load took over twice as long: measure again", field=f"/seconds/{i}/{j}"
        )
    return grid
