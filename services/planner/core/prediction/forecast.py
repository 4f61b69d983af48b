"""The distribution of answer lengths, one row per sample, as quantiles (pure).

Between its quantiles a row is read as a straight line of log length over the logit of the level:
exact for a log-logistic, close for a log-normal, and conditioning on "longer than t" (B5 of the
literature on residual life) then has a closed form. Beyond the outermost levels the nearest line
is carried on, which above means a Pareto tail.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Logs = NDArray[np.float32]  # log tokens; their rounding is below a tenth of a token at 2**17

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.9, 0.99)
"""The levels of the columns of `Forecast.quantiles`."""

Z = (-1.644854, -0.67449, 0.0, 0.67449, 1.281552, 2.326348)
"""The same levels as quantiles of the standard normal."""

_P = np.array(LEVELS)
_X = np.log(_P / (1.0 - _P))
_X32 = _X.astype(np.float32)
_FLATTEST = 1e-3  # slope of log length per logit: an atom at the limit must stay invertible
_STEEPEST_TAIL = 0.6  # a Pareto tail has a mean below 1; above this a few rows would rule all sums


@dataclass(frozen=True)
class Forecast:
    """Lengths of n samples in tokens: float32 (n, len(LEVELS)), ascending, within 1..limit."""

    quantiles: NDArray[np.float32]

    def __post_init__(self) -> None:
        assert self.quantiles.ndim == 2, "one row per sample"
        assert self.quantiles.shape[1] == len(LEVELS), "one column per level"
        later, earlier = self.quantiles[:, 1:], self.quantiles[:, :-1]
        assert bool((later >= earlier).all()), "quantiles ascend"
        assert self.quantiles.size == 0 or float(self.quantiles[:, 0].min()) >= 1, "from 1 token"

    def __len__(self) -> int:
        return int(self.quantiles.shape[0])

    def mean(self) -> NDArray[np.float64]:
        """(n,) expected tokens."""
        logs = self._logs()
        nodes, weights = _QUADRATURE
        total = np.exp(_lengths_at(logs, nodes)) @ weights.astype(np.float32)
        return np.maximum(total + _mean_beyond(logs), 1.0).astype(np.float64)

    def at(self, level: float) -> NDArray[np.float64]:
        """(n,) tokens at this level; below the first and above the last of LEVELS, held there."""
        assert 0.0 < level < 1.0, "a level lies between 0 and 1"
        held = min(max(level, LEVELS[0]), LEVELS[-1])
        node = np.array([np.log(held / (1.0 - held))])
        return np.exp(_lengths_at(self._logs(), node)[:, 0]).astype(np.float64)

    def residual(
        self, done: NDArray[np.int32], limit: NDArray[np.int32] | int | None = None
    ) -> Forecast:
        """Tokens still to come where `done` (n,) tokens exist and no end: at least 1 each.

        Past the last quantile the Pareto tail speaks: the longer it has run, the more is to come.
        `limit` (n,) or one for all, where given, bounds done + rest (but a rest is at least 1).
        """
        begun = np.asarray(done) > 0
        written = np.maximum(np.asarray(done, dtype=np.float32), 1.0)[:, None]
        rest = np.exp(_longer_than(self._logs(), np.log(written[:, 0]))) - written
        rest = np.where(begun[:, None], rest, self.quantiles).astype(np.float32)
        if limit is not None:
            left = np.reshape(limit, (-1, 1)) - np.reshape(done, (-1, 1))
            rest = np.minimum(rest, left.astype(np.float32))
        return Forecast(np.maximum(_ascending(rest), np.float32(1.0)))

    def take(self, indices: NDArray[np.intp]) -> Forecast:
        """The rows at these indices (or of this mask), in that order."""
        return Forecast(self.quantiles[indices])

    def _logs(self) -> Logs:
        return np.log(self.quantiles)


def log_normal(mu: Floats, sigma: Floats, limit: float) -> Forecast:
    """The forecast of log-normal lengths, cut at `limit`: mu and sigma (n,) of log tokens."""
    logs = np.asarray(mu)[:, None] + np.asarray(sigma)[:, None] * np.array(Z)
    return clipped(np.exp(np.minimum(logs, np.log(limit))), limit)


def clipped(quantiles: Floats | Logs, limit: float) -> Forecast:
    """The forecast of (n, levels) quantiles, brought within 1..limit and made to ascend."""
    return Forecast(_ascending(np.clip(quantiles, 1.0, limit).astype(np.float32)))


def _ascending(quantiles: Logs) -> Logs:
    """In place: no column falls below the one before (pieces of least slope may overlap)."""
    for column in range(1, quantiles.shape[1]):
        np.maximum(quantiles[:, column], quantiles[:, column - 1], out=quantiles[:, column])
    return quantiles


def _gauss() -> tuple[Floats, Floats]:
    """Logits and weights that integrate over the levels 0..LEVELS[-1], two per piece."""
    edges = np.concatenate([[0.0], _P])
    middle, half = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) / 2
    points = np.concatenate([middle - half / np.sqrt(3), middle + half / np.sqrt(3)])
    return np.log(points / (1.0 - points)), np.concatenate([half, half])


_QUADRATURE = _gauss()


def _lengths_at(logs: Logs, logits: Floats) -> Logs:
    """(n, m) log lengths at m logits that are the same for all rows."""
    piece = np.clip(np.searchsorted(_X, logits), 1, len(_X) - 1)
    weights = np.zeros((len(LEVELS), len(logits)), dtype=np.float32)
    share, column = (logits - _X[piece - 1]) / (_X[piece] - _X[piece - 1]), np.arange(len(logits))
    weights[piece - 1, column], weights[piece, column] = 1.0 - share, share
    return np.asarray(np.maximum(logs @ weights, np.float32(0.0)))


def _mean_beyond(logs: Logs) -> Logs:
    """What the levels above the last add to the mean: a Pareto tail of bounded weight."""
    slope = (logs[:, -1] - logs[:, -2]) / np.float32(_X[-1] - _X[-2])
    weight = np.float32(1.0 - _P[-1]) / (1.0 - np.clip(slope, 0.0, _STEEPEST_TAIL))
    return np.asarray(weight * np.exp(logs[:, -1]), dtype=np.float32)


def _longer_than(logs: Logs, bound: Logs) -> Logs:
    """(n, levels) log quantiles given a log length above `bound` (n,)."""
    lines = _Lines.of(logs)
    survival = -np.logaddexp(np.float32(0.0), lines.logit_of(bound))  # log P(longer)
    beyond = survival[:, None] + np.log(1.0 - _P).astype(np.float32)
    return lines.at(np.log1p(-np.exp(beyond)) - beyond)


@dataclass(frozen=True)
class _Lines:
    """The pieces of each row between two levels: start and slope per logit (n * pieces,)."""

    logs: Logs
    start: Logs
    slope: Logs

    @staticmethod
    def of(logs: Logs) -> _Lines:
        slope = np.diff(logs, axis=1) / np.diff(_X).astype(np.float32)
        steep = np.maximum(slope, np.float32(_FLATTEST))
        return _Lines(logs, np.ascontiguousarray(logs[:, :-1]).ravel(), steep.ravel())

    def logit_of(self, bound: Logs) -> Logs:
        """(n,) the logit of the level that lies at `bound` (n,)."""
        passed = np.zeros(len(bound), dtype=np.intp)
        for column in range(1, len(_X) - 1):
            passed += self.logs[:, column] <= bound
        place = passed + np.arange(len(bound)) * (len(_X) - 1)
        return np.asarray(_X32[passed] + (bound - self.start[place]) / self.slope[place])

    def at(self, logits: Logs) -> Logs:
        """(n, m) log lengths at (n, m) logits, each row its own."""
        piece = np.searchsorted(_X32[1:-1], logits)
        place = piece + (np.arange(len(logits)) * (len(_X) - 1))[:, None]
        return np.asarray(self.start[place] + self.slope[place] * (logits - _X32[piece]))
