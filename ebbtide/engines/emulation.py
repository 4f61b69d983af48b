"""What the emulated engine computes, advanced from outside: no clock, no loop, no model.

All running samples of an actor advance together, one token per time-per-output-token of the
current batch size, so the state changes only when a sample starts or ends, not at every token.
"""

from __future__ import annotations

import hashlib
import heapq
import math
from collections import deque
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np
from numpy.typing import NDArray

from ebbtide.engines.samples import Sample
from ebbtide.ports import EngineCut, EngineEvent, EngineFinished, NewTokens
from ebbtide.wire import Dispatch, Journal, PolicyRef

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX2 = np.uint64(0x94D049BB133111EB)
_EPSILON = 1e-9
"""Seconds by which a clock may miss the moment it was asked for, by rounding."""


@dataclass(frozen=True, kw_only=True)
class Emulated:
    """What is emulated. Lengths in tokens, times in seconds.

    With a `trace`, a sample's length is drawn from it; otherwise it is log-normal with
    `mean_tokens` and `sigma`. A sample never exceeds its own max_new_tokens.
    """

    slots: int = 64
    width: int = 1 << 20
    vocab: int = 256
    mean_tokens: float = 200.0
    sigma: float = 0.8
    trace: tuple[int, ...] = ()
    tpot: float = 0.010
    """Time per output token of a single sample,"""
    tpot_per_row: float = 0.00005
    """and more for each further sample in the batch."""
    flush_seconds: float = 1.0
    prompt_share: float = 0.0
    """Of the variance of log length: what is the prompt's, in every epoch the same."""
    prefill: float = 0.0
    """To compute one token of a text that is not there yet; what runs stands still meanwhile."""
    prefix_cache: bool = True
    """Whether a prompt is computed once for all its samples, as long as the policy is held."""

    def length(self, word: int, prompt: bytes = b"") -> int:
        """How long the sample with noise word `word` gets if nothing limits it; at least 1."""
        if self.trace:
            return max(1, self.trace[word % len(self.trace)])
        mu = math.log(self.mean_tokens) - self.sigma**2 / 2
        score = math.sqrt(1 - self.prompt_share) * _score(word)
        if self.prompt_share:
            score += math.sqrt(self.prompt_share) * _score(_word_of(prompt))
        return max(1, round(math.exp(mu + self.sigma * score)))

    def seconds_per_token(self, batch: int) -> float:
        """Time per output token when `batch` samples run together; never 0."""
        return max(self.tpot + self.tpot_per_row * max(0, batch - 1), 1e-9)


def _score(word: int) -> float:
    """A standard normal number, a function of `word`."""
    return NormalDist().inv_cdf((word % (1 << 32) + 0.5) / (1 << 32))


def _word_of(prompt: bytes) -> int:
    return int.from_bytes(hashlib.sha256(prompt).digest()[:8], "little")


@dataclass(slots=True)
class _Row:
    sample: Sample
    begun: float
    """Tick at which it began."""
    total: int
    sent: int
    finish: str


class Emulation:
    """The engine's state, advanced from outside: pure apart from its own memory.

    A tick is one output token of every running sample.
    """

    def __init__(self, params: Emulated, policy: PolicyRef, now: float) -> None:
        self.policy = policy
        self.waiting: deque[Sample] = deque()
        self.rows: dict[Dispatch, _Row] = {}
        self.decoded = self.prefilled = self.shared = 0
        self._prompts: set[bytes] = set()
        self._params = params
        self._ends: list[tuple[float, Dispatch]] = []
        self._tick = 0.0
        self._time = now
        self._swept = now

    @property
    def idle(self) -> bool:
        return not self.rows and not self.waiting

    @property
    def tpot(self) -> float:
        return self._params.seconds_per_token(len(self.rows))

    @property
    def kv_used(self) -> int:
        return sum(len(r.sample.prompt) + self._count(r) for r in self.rows.values())

    def submit(self, sample: Sample, now: float) -> list[EngineEvent]:
        events = self.advance(now)
        if sample.ended:
            return [*events, sample.finished_as_it_came(self.policy, now)]
        self.waiting.append(sample)
        self._admit()
        return events

    def cut(self, dispatch: Dispatch, now: float) -> list[EngineEvent]:
        """What happened until now, then the cut; no cut if the sample is not here any more."""
        events = self.advance(now)
        if row := self.rows.pop(dispatch, None):
            tokens, logprobs = self._text(row, 0, self._count(row))
            spans = row.sample.spans(0, self._count(row), self.policy)
            events.append(EngineCut(dispatch, tokens, logprobs, spans))
            self._admit()
        for sample in [s for s in self.waiting if s.dispatch == dispatch]:
            self.waiting.remove(sample)
            events.append(sample.cut_as_it_came(self.policy))
        return events

    def next_at(self) -> float:
        """When something will happen by itself: a sample ends, or a report is due."""
        if not self.rows:
            return math.inf
        self._forget_cut()
        ends = self._time + (self._ends[0][0] - self._tick) * self.tpot
        return min(ends, self._swept + self._params.flush_seconds)

    def advance(self, now: float) -> list[EngineEvent]:
        """Let time pass up to `now`; returns what happened, in order."""
        events: list[EngineEvent] = []
        while self.rows:
            self._forget_cut()
            ends = self._time + (self._ends[0][0] - self._tick) * self.tpot
            if ends > now + _EPSILON:
                break
            self._tick, self._time = self._ends[0][0], max(ends, self._time)
            events.append(self._finish(heapq.heappop(self._ends)[1]))
            self._admit()
        if self.rows:
            self._tick += max(0.0, now - self._time) / self.tpot
        self._time = max(now, self._time)
        return events + self._report(now)

    def _admit(self) -> None:
        while self.waiting and len(self.rows) < self._params.slots:
            sample = self.waiting.popleft()
            sample.admitted = self._time
            self._time += self._params.prefill * self._computed(sample)
            sample.started = self._time
            row = self._open(sample)
            self.rows[sample.dispatch] = row
            ends = self._tick + row.total - len(sample.tokens)
            heapq.heappush(self._ends, (ends, sample.dispatch))

    def _computed(self, sample: Sample) -> int:
        """Tokens of the text that must be computed before the first new one."""
        prompt, text = sample.admission.prompt, len(sample.prompt) + len(sample.tokens)
        known = len(sample.prompt) if prompt in self._prompts else 0
        if self._params.prefix_cache:
            self._prompts.add(prompt)
        self.shared += known
        self.prefilled += text - known
        return text - known

    def _open(self, sample: Sample) -> _Row:
        known, stops = len(sample.tokens), sample.admission.assign.sampling.stop_ids
        natural = max(known + 1, self._params.length(sample.word, sample.admission.prompt))
        stopped = bool(stops) and natural <= sample.limit
        total = natural if stopped else sample.limit
        return _Row(sample, self._tick, total, known, "stop" if stopped else "length")

    def _finish(self, dispatch: Dispatch) -> EngineFinished:
        row = self.rows.pop(dispatch)
        tokens, logprobs = self._text(row, 0, row.total)
        self.decoded += row.total - len(row.sample.tokens)
        return EngineFinished(
            dispatch=dispatch,
            tokens=tokens,
            logprobs=logprobs,
            spans=row.sample.spans(0, row.total, self.policy),
            finish=row.finish,
            queued=row.sample.admitted - row.sample.submitted,
            prefill=row.sample.started - row.sample.admitted,
            decode=self._time - row.sample.started,
        )

    def _report(self, now: float) -> list[EngineEvent]:
        if now - self._swept < self._params.flush_seconds - _EPSILON:
            return []
        self._swept = now
        fresh = [row for row in self.rows.values() if self._count(row) > row.sent]
        return [self._chunk(row) for row in fresh]

    def _chunk(self, row: _Row) -> NewTokens:
        start, end = row.sent, self._count(row)
        row.sent = end
        tokens, logprobs = self._text(row, start, end)
        spans = row.sample.spans(start, end, self.policy)
        return NewTokens(row.sample.dispatch, Journal(start, tokens, logprobs, spans))

    def _count(self, row: _Row) -> int:
        """Response tokens so far; the last one comes with the end."""
        return min(row.total - 1, len(row.sample.tokens) + int(self._tick - row.begun))

    def _text(self, row: _Row, start: int, end: int) -> tuple[bytes, bytes]:
        """Tokens and log-probabilities [start, end) of a row, packed."""
        sample = row.sample
        stops = sample.admission.assign.sampling.stop_ids
        tokens, logprobs = _draws(sample.word, end, self._params.vocab, stops)
        known = len(sample.tokens)
        tokens[:known], logprobs[:known] = sample.tokens[:end], sample.logprobs[:end]
        if row.finish == "stop" and end == row.total:
            tokens[-1] = stops[0]
        return tokens[start:].tobytes(), logprobs[start:].tobytes()

    def _forget_cut(self) -> None:
        while self._ends[0][1] not in self.rows:
            heapq.heappop(self._ends)


def _draws(
    word: int, n: int, vocab: int, stops: tuple[int, ...]
) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """`n` ordinary tokens with log-probabilities, by SplitMix64 over positions."""
    ordinary = np.setdiff1d(np.arange(vocab, dtype=np.int32), stops)
    with np.errstate(over="ignore"):
        z = np.uint64(word % (1 << 64)) + np.arange(1, n + 1, dtype=np.uint64) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * _MIX1
        z = (z ^ (z >> np.uint64(27))) * _MIX2
        z ^= z >> np.uint64(31)
    tokens = ordinary[z % np.uint64(len(ordinary))]
    uniform = ((z >> np.uint64(40)) + 1).astype(np.float32) * np.float32(2.0**-24)
    return tokens, np.log(uniform) * np.float32(0.5)
