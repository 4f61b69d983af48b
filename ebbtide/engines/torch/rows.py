"""Host state of the running batch: one row a sample.

Kept in arrays, so that a step is a few vector operations whatever the number of rows. Rows
[0, n) are live and stay contiguous.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ebbtide.engines.samples import Sample
from ebbtide.ports import EngineCut, EngineFinished, KvData, NewTokens
from ebbtide.wire import Journal, PolicyRef

Ints = NDArray[np.int64]

ROW = np.dtype(
    [
        ("last", "i8"),  # the token that the next step computes
        ("prompt", "i8"),  # tokens in the prompt
        ("count", "i8"),  # response tokens computed here, replayed ones included
        ("known", "i8"),  # response tokens that were resumed
        ("limit", "i8"),  # the response's greatest length
        ("sent", "i8"),  # response tokens reported in NewTokens (or known)
        ("word", "i8"),  # noise stream
        ("temperature", "f4"),
    ]
)


class Moves(NamedTuple):
    """Rows that changed place: `sources[i]` now lies at `targets[i]`."""

    targets: Ints
    sources: Ints


class Rows:
    """`slots` rows of at most `width` response tokens each."""

    def __init__(self, slots: int, width: int) -> None:
        self.slots = slots
        self.samples: list[Sample] = []
        self.at = np.zeros(slots, dtype=ROW)
        self._tokens = np.zeros((slots, width), dtype=np.int32)
        self._logprobs = np.zeros((slots, width), dtype=np.float32)
        self._stops = np.full((slots, 1), -1, dtype=np.int64)

    @property
    def n(self) -> int:
        """Live rows."""
        return len(self.samples)

    @property
    def positions(self) -> Ints:
        """Where each live row's next token goes: the last prompt token first."""
        at = self.at[: self.n]
        positions: Ints = at["prompt"] - 1 + at["count"]
        return positions

    def add(self, sample: Sample, *, count: int) -> int:
        """Open a row that starts after `count` response tokens, and replays what it knows more."""
        row, known = self.n, len(sample.tokens)
        last = sample.tokens[count - 1] if count else sample.prompt[-1]
        temperature = sample.admission.assign.sampling.temperature
        self.at[row] = (
            *(last, len(sample.prompt), count, known, sample.limit, known),
            *(sample.word, temperature),
        )
        self._tokens[row, :known] = sample.tokens
        self._logprobs[row, :known] = sample.logprobs
        self._set_stops(row, sample.admission.assign.sampling.stop_ids)
        self.samples.append(sample)
        return row

    def take(self, tokens: Ints, logprobs: NDArray[np.float32]) -> NDArray[np.bool_]:
        """Note what was drawn for each live row, (n,); returns which rows are complete.

        A row that replays keeps what it knows, and the draw is dropped.
        """
        n, every = self.n, np.arange(self.n)
        at = self.at[:n]
        replayed = at["count"] < at["known"]
        kept = np.where(replayed, self._tokens[every, at["count"]], tokens)
        lasting = np.where(replayed, self._logprobs[every, at["count"]], logprobs)
        self._tokens[every, at["count"]] = kept
        self._logprobs[every, at["count"]] = lasting
        at["last"] = kept
        at["count"] += 1
        stopped = (self._stops[:n] == kept[:, None]).any(axis=1)
        done: NDArray[np.bool_] = ~replayed & (stopped | (at["count"] == at["limit"]))
        return done

    def drop(self, gone: Ints) -> Moves:
        """Close the rows `gone`; the last live rows move into the holes."""
        n = self.n - len(gone)
        keep = np.ones(self.n, dtype=np.bool_)
        keep[gone] = False
        sources = np.flatnonzero(keep[n:]) + n
        targets = np.sort(gone)[: len(sources)]
        for array in (self.at, self._tokens, self._logprobs, self._stops):
            array[targets] = array[sources]
        for target, source in zip(targets.tolist(), sources.tolist(), strict=True):
            self.samples[target] = self.samples[source]
        del self.samples[n:]
        return Moves(targets, sources)

    def due(self, n_tokens: int) -> Ints:
        """Rows with at least `n_tokens` tokens not yet reported."""
        at = self.at[: self.n]
        return np.flatnonzero(at["count"] - at["sent"] >= n_tokens)

    def chunk(self, row: int, policy: PolicyRef) -> NewTokens:
        """What is new in `row` since the last chunk."""
        start, end = int(self.at["sent"][row]), int(self.at["count"][row])
        self.at["sent"][row] = end
        sample = self.samples[row]
        tokens, logprobs = self._tokens[row, start:end], self._logprobs[row, start:end]
        spans = sample.spans(start, end, policy)
        return NewTokens(
            sample.dispatch, Journal(start, tokens.tobytes(), logprobs.tobytes(), spans)
        )

    def finished(self, row: int, policy: PolicyRef, now: float) -> EngineFinished:
        """The whole response of a complete row. A stop token at the limit is a stop."""
        end = int(self.at["count"][row])
        sample = self.samples[row]
        stopped = bool((self._stops[row] == self.at["last"][row]).any())
        return EngineFinished(
            dispatch=sample.dispatch,
            tokens=self._tokens[row, :end].tobytes(),
            logprobs=self._logprobs[row, :end].tobytes(),
            spans=sample.spans(0, end, policy),
            finish="stop" if stopped else "length",
            queued=sample.admitted - sample.submitted,
            prefill=sample.started - sample.admitted,
            decode=now - sample.started,
        )

    def text(self, row: int) -> bytes:
        """Prompt and response tokens computed here, packed."""
        tokens = self._tokens[row, : self.at["count"][row]]
        return self.samples[row].admission.prompt + tokens.tobytes()

    def cut(self, row: int, policy: PolicyRef, kv: KvData | None = None) -> EngineCut:
        """Everything that `row` has so far; what it knew counts even if not yet replayed."""
        end = int(max(self.at["count"][row], self.at["known"][row]))
        sample = self.samples[row]
        return EngineCut(
            dispatch=sample.dispatch,
            tokens=self._tokens[row, :end].tobytes(),
            logprobs=self._logprobs[row, :end].tobytes(),
            spans=sample.spans(0, end, policy),
            kv=kv,
        )

    def _set_stops(self, row: int, stop_ids: tuple[int, ...]) -> None:
        more = len(stop_ids) - self._stops.shape[1]
        if more > 0:
            self._stops = np.pad(self._stops, ((0, 0), (0, more)), constant_values=-1)
        self._stops[row] = -1
        self._stops[row, : len(stop_ids)] = stop_ids
