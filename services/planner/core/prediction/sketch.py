"""Running histograms of a few hundred bytes that forget and know censoring (pure)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


class Sketch:
    """Weights (rows, bins) over one common axis `low..high`; ends take what lies beyond.

    Quantiles are read inside a bin by straight lines, so they are as fine as a bin is wide.
    """

    def __init__(self, rows: int, *, low: float, high: float, bins: int) -> None:
        self.edges = np.linspace(low, high, bins + 1)
        self.weights: Floats = np.zeros((rows, bins))

    def bins_of(self, values: Floats) -> NDArray[np.intp]:
        """(n,) the bin of each value."""
        scale = (len(self.edges) - 1) / (self.edges[-1] - self.edges[0])
        bins = np.floor((values - self.edges[0]) * scale + 1e-9).astype(np.intp)
        return np.asarray(np.clip(bins, 0, len(self.edges) - 2))

    def decay(self, factor: float) -> None:
        self.weights *= factor

    def reserve(self, rows: int) -> None:
        """Have at least this many rows."""
        more = rows - len(self.weights)
        if more > 0:
            self.weights = np.pad(self.weights, ((0, more), (0, 0)))

    def add(self, rows: NDArray[np.intp], values: Floats, censored: NDArray[np.bool_]) -> None:
        """Add n values; a censored one is spread over what its row holds above it.

        That is Kaplan and Meier's estimate, bin by bin: an answer cut at c counts as one of the
        answers longer than c, and in the last bin where there is none.
        """
        self.weights += self._counts(rows[~censored], values[~censored])
        if censored.any():
            self.weights = _spread(self.weights, self._counts(rows[censored], values[censored]))

    def _counts(self, rows: NDArray[np.intp], values: Floats) -> Floats:
        shape = self.weights.shape
        flat = np.bincount(rows * shape[1] + self.bins_of(values), minlength=shape[0] * shape[1])
        return np.asarray(flat.reshape(shape), dtype=np.float64)


def _spread(ended: Floats, cut: Floats) -> Floats:
    """(rows, bins) weights of the ended ones with the cut ones spread over what is above them."""
    both = ended + cut
    at_risk = np.cumsum(both[:, ::-1], axis=1)[:, ::-1]
    hazard = ended / np.where(at_risk > 0, at_risk, 1.0)
    survive = np.cumprod(np.clip(1.0 - hazard, 0.0, 1.0), axis=1)
    spread = -np.diff(survive, axis=1, prepend=1.0)
    spread[:, -1] += survive[:, -1]
    return np.asarray(spread * both.sum(axis=1, keepdims=True))


def quantiles(weights: Floats, edges: Floats, levels: Floats) -> Floats:
    """(rows, levels) of rows that each hold some weight."""
    shares = np.cumsum(weights, axis=1) / weights.sum(axis=1, keepdims=True)
    ladders = np.pad(shares, ((0, 0), (1, 0)))
    return np.stack([np.interp(levels, ladder, edges) for ladder in ladders])


def moments(weights: Floats, edges: Floats) -> tuple[Floats, Floats]:
    """Mean and variance (rows,) of rows that each hold some weight."""
    middles = (edges[1:] + edges[:-1]) / 2
    shares = weights / weights.sum(axis=1, keepdims=True)
    mean = shares @ middles
    return mean, np.maximum(shares @ middles**2 - mean**2, 0.0)
