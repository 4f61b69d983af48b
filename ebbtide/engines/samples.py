"""One sample as an engine holds it, from submit to its terminal event (no torch here)."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from ebbtide.errors import Refused
from ebbtide.kv import kv_key
from ebbtide.ports import Admission, EngineCut, EngineFinished, KvData
from ebbtide.wire import Dispatch, PolicyRef, Span, unpack_floats, unpack_ints


def noise_word(noise_key: bytes) -> int:
    """First 8 bytes of the key's SHA-256, a signed little-endian integer: a sample's stream."""
    return int.from_bytes(hashlib.sha256(noise_key).digest()[:8], "little", signed=True)


@dataclass(slots=True)
class Sample:
    """An admission unpacked. Times are in seconds on the engine's clock."""

    admission: Admission
    prompt: NDArray[np.int32]
    tokens: NDArray[np.int32]
    """What was resumed, int32 (k,)."""
    logprobs: NDArray[np.float32]
    word: int
    submitted: float
    kv: KvData | None = None
    """What was brought along, until it is loaded."""
    admitted: float = field(default=0.0)
    started: float = field(default=0.0)

    @property
    def dispatch(self) -> Dispatch:
        return self.admission.assign.dispatch

    @property
    def limit(self) -> int:
        return self.admission.assign.max_new_tokens

    @property
    def text(self) -> NDArray[np.int32]:
        """Prompt and resumed tokens."""
        return np.concatenate([self.prompt, self.tokens])

    @property
    def covered(self) -> int:
        """Tokens of the text whose keys and values were brought along."""
        return self.kv.key.n_tokens if self.kv else 0

    @property
    def brings_response(self) -> bool:
        """Whether what was brought along goes beyond the prompt."""
        return self.covered > len(self.prompt) - 1

    def bring(self, kv: KvData, *, policy: PolicyRef, layout: str, size: int) -> bool:
        """Take `kv` along, `size` bytes a token, if it is of this text under this policy.

        It must reach the prompt's last token but one, and stop short of the text's last.
        """
        n, text = kv.key.n_tokens, self.text
        if not len(self.prompt) - 1 <= n < len(text) or kv.data.nbytes != n * size or not n:
            return False
        if kv.key != kv_key(policy, text.tobytes(), n, layout):
            return False
        self.kv = kv
        return True

    @property
    def reserve(self) -> int:
        """Tokens of KV that it may come to need."""
        return len(self.prompt) + self.limit

    @property
    def ended(self) -> str:
        """Finish reason of a sample that was resumed when it had already ended, or empty.

        Only a token that was drawn ends an answer; an environment may give any.
        """
        resumed = self.admission.resumed
        drawn = resumed is not None and resumed.spans and resumed.spans[-1].end == len(self.tokens)
        if drawn and int(self.tokens[-1]) in self.admission.assign.sampling.stop_ids:
            return "stop"
        return "length" if len(self.tokens) == self.limit else ""

    def spans(self, start: int, end: int, policy: PolicyRef) -> tuple[Span, ...]:
        """Spans of response tokens [start, end): the resumed ones, then `policy`."""
        resumed = self.admission.resumed
        known = len(self.tokens)
        old = resumed.spans if resumed else ()
        cut = [Span(max(s.start, start), min(s.end, end), s.policy) for s in old]
        if end > known:
            cut.append(Span(max(start, known), end, policy))
        return _joined([span for span in cut if span.start < span.end])

    def cut_as_it_came(self, policy: PolicyRef, *, export: bool = False) -> EngineCut:
        """The answer to a cut before anything was computed; what was brought along goes on."""
        spans, kv = self.spans(0, len(self.tokens), policy), self.kv if export else None
        return EngineCut(self.dispatch, self.tokens.tobytes(), self.logprobs.tobytes(), spans, kv)

    def finished_as_it_came(self, policy: PolicyRef, now: float) -> EngineFinished:
        """The answer when what was resumed had already ended."""
        return EngineFinished(
            dispatch=self.dispatch,
            tokens=self.tokens.tobytes(),
            logprobs=self.logprobs.tobytes(),
            spans=self.spans(0, len(self.tokens), policy),
            finish=self.ended,
            queued=now - self.submitted,
            prefill=0.0,
            decode=0.0,
        )


def _joined(spans: list[Span]) -> tuple[Span, ...]:
    """Neighbouring spans of one policy as one."""
    joined: list[Span] = []
    for span in spans:
        if joined and joined[-1].policy == span.policy and joined[-1].end == span.start:
            joined[-1] = Span(joined[-1].start, span.end, span.policy)
        else:
            joined.append(span)
    return tuple(joined)


def open_sample(admission: Admission, *, vocab: int, width: int, now: float) -> Sample:
    """Unpack and check; raises Refused when the sample cannot be decoded here."""
    assign, resumed = admission.assign, admission.resumed
    prompt = unpack_ints(admission.prompt)
    tokens = unpack_ints(resumed.tokens if resumed else b"")
    logprobs = unpack_floats(resumed.logprobs if resumed else b"")
    _require(len(prompt) > 0, "the prompt is empty")
    _require(assign.max_new_tokens > 0, "max_new_tokens is not positive")
    _require(len(tokens) <= assign.max_new_tokens, "resumed beyond max_new_tokens")
    _require(len(tokens) == len(logprobs), "resumed tokens and log-probabilities differ in number")
    need = len(prompt) + assign.max_new_tokens
    _require(need <= width, f"prompt and response need {need} tokens, the engine has {width}")
    ids = np.concatenate([prompt, tokens])
    _require(ids.min() >= 0 and ids.max() < vocab, f"a token id is outside [0, {vocab})")
    word = noise_word(assign.noise_key)
    admission = replace(admission, kv=None)  # an engine that can use it has it brought along
    return Sample(admission, prompt, tokens, logprobs, word, submitted=now)


def _require(holds: bool, detail: str) -> None:
    if not holds:
        raise Refused(detail, field="/prompt")
