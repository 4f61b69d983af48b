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

LEVELS = (0.05, 0.25, 0.5, 0.75, 0.9, 0.99)
"""The levels of the columns of `Forecast.quantiles`."""

Z = (-1.644854, -0.67449, 0.0, 0.67449, 1.281552, 2.326348)
"""The same levels as quantiles of the standard normal."""

_P = np.array(LEVELS)
_X = np.log(_P / (1.0 - _P))
_FLATTEST = 1e-3  # slope of log length per logit: an atom at the limit must stay invertible
_STEEPEST_TAIL = 0.6  # a Pareto tail has a mean below 1; above this a few rows would rule all sums


@dataclass(frozen=True)
class Forecast:
    """Lengths of n samples in tokens: float32 (n, len(LEVELS)), ascending, within 1..limit."""

    quantiles: NDArray[np.float32]

    def __post_init__(self) -> None:
        assert self.quantiles.ndim == 2, "one row per sample"
        assert self.quantiles.shape[1] == len(LEVELS), "one column per level"
        assert bool(np.all(np.diff(self.quantiles, axis=1) >= 0)), "quantiles ascend"
        assert self.quantiles.size == 0 or float(self.quantiles[:, 0].min()) >= 1, "from 1 token"

    def __len__(self) -> int:
        return int(self.quantiles.shape[0])

    def mean(self) -> NDArray[np.float64]:
        """(n,) expected tokens."""
        logs = self._logs()
        nodes, weights = _QUADRATURE
        total = np.exp(_lengths_at(logs, nodes)) @ weights
        return np.asarray(np.maximum(total + _mean_beyond(logs), 1.0))

    def at(self, level: float) -> NDArray[np.float64]:
        """(n,) tokens at this level; below the first and above the last of LEVELS, held there."""
        assert 0.0 < level < 1.0, "a level lies between 0 and 1"
        held = min(max(level, LEVELS[0]), LEVELS[-1])
        node = np.array([np.log(held / (1.0 - held))])
        return np.asarray(np.exp(_lengths_at(self._logs(), node)[:, 0]))

    def residual(
        self, done: NDArray[np.int32], limit: NDArray[np.int32] | int | None = None
    ) -> Forecast:
        """Tokens still to come where `done` (n,) tokens exist and no end: at least 1 each.

        Past the last quantile the Pareto tail speaks: the longer it has run, the more is to come.
        `limit` (n,) or one for all, where given, bounds done + rest (but a rest is at least 1).
        """
        begun = np.asarray(done) > 0
        written = np.maximum(np.asarray(done, dtype=np.float64), 1.0)[:, None]
        rest = np.exp(_longer_than(self._logs(), np.log(written[:, 0]))) - written
        rest = np.where(begun[:, None], rest, self.quantiles)
        if limit is not None:
            rest = np.minimum(rest, np.reshape(limit, (-1, 1)) - np.reshape(done, (-1, 1)))
        ascending = np.maximum.accumulate(rest, axis=1)  # pieces of least slope may overlap
        return Forecast(np.maximum(ascending, 1.0).astype(np.float32))

    def take(self, indices: NDArray[np.intp]) -> Forecast:
        """The rows at these indices (or of this mask), in that order."""
        return Forecast(self.quantiles[indices])

    def _logs(self) -> Floats:
        return np.asarray(np.log(self.quantiles, dtype=np.float64))


def log_normal(mu: Floats, sigma: Floats, limit: float) -> Forecast:
    """The forecast of log-normal lengths, cut at `limit`: mu and sigma (n,) of log tokens."""
    logs = np.asarray(mu)[:, None] + np.asarray(sigma)[:, None] * np.array(Z)
    return clipped(np.exp(np.minimum(logs, np.log(limit))), limit)


def clipped(quantiles: Floats, limit: float) -> Forecast:
    """The forecast of (n, levels) quantiles, brought within 1..limit and made to ascend."""
    within = np.clip(np.maximum.accumulate(quantiles, axis=1), 1.0, limit)
    return Forecast(within.astype(np.float32))


def _gauss() -> tuple[Floats, Floats]:
    """Logits and weights that integrate over the levels 0..LEVELS[-1], two per piece."""
    edges = np.concatenate([[0.0], _P])
    middle, half = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) / 2
    points = np.concatenate([middle - half / np.sqrt(3), middle + half / np.sqrt(3)])
    return np.log(points / (1.0 - points)), np.concatenate([half, half])


_QUADRATURE = _gauss()


def _lengths_at(logs: Floats, logits: Floats) -> Floats:
    """(n, m) log lengths at m logits that are the same for all rows."""
    piece = np.clip(np.searchsorted(_X, logits), 1, len(_X) - 1)
    share = (logits - _X[piece - 1]) / (_X[piece] - _X[piece - 1])
    return np.asarray(np.maximum(logs[:, piece - 1] * (1.0 - share) + logs[:, piece] * share, 0.0))


def _mean_beyond(logs: Floats) -> Floats:
    """What the levels above the last add to the mean: a Pareto tail of bounded weight."""
    return np.asarray((1.0 - _P[-1]) * np.exp(logs[:, -1]) / (1.0 - _tail_slope(logs)))


def _tail_slope(logs: Floats) -> Floats:
    slope = (logs[:, -1] - logs[:, -2]) / (_X[-1] - _X[-2])
    return np.asarray(np.clip(slope, 0.0, _STEEPEST_TAIL))


def _longer_than(logs: Floats, bound: Floats) -> Floats:
    """(n, levels) log quantiles given a log length above `bound` (n,)."""
    survival = -np.logaddexp(0.0, _logit_of(logs, bound))  # log of P(longer than the bound)
    beyond = survival[:, None] + np.log(1.0 - _P)
    logits = np.log1p(-np.exp(beyond)) - beyond
    return _lengths_by_row(logs, logits)


def _logit_of(logs: Floats, bound: Floats) -> Floats:
    """(n,) the logit of the level that lies at `bound` (n,)."""
    piece = np.clip((logs <= bound[:, None]).sum(axis=1), 1, len(_X) - 1)
    start, slope = _line(logs, piece[:, None])
    return np.asarray(_X[piece - 1] + (bound - start[:, 0]) / slope[:, 0])


def _lengths_by_row(logs: Floats, logits: Floats) -> Floats:
    """(n, m) log lengths at (n, m) logits, each row its own."""
    piece = np.clip(np.searchsorted(_X, logits), 1, len(_X) - 1)
    start, slope = _line(logs, piece)
    return np.asarray(start + slope * (logits - _X[piece - 1]))


def _line(logs: Floats, piece: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """(n, m) log length at the start of each row's piece, and its slope per logit."""
    start = np.take_along_axis(logs, piece - 1, axis=1)
    rise = np.take_along_axis(logs, piece, axis=1) - start
    return start, np.maximum(rise / (_X[piece] - _X[piece - 1]), _FLATTEST)
