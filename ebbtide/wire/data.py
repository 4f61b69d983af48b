"""Prompts, assignments, rollouts, journals and scores."""

from __future__ import annotations

from ebbtide.wire.base import Wire
from ebbtide.wire.identity import (
    Dispatch,
    JournalRef,
    KvKey,
    KvTicket,
    PolicyRef,
    PromptRef,
    Ref,
    SampleKey,
)


class PromptRow(Wire, frozen=True):
    """One prepared prompt. `tokens` is packed; `reference` is JSON for the scorers.

    Of a pair `completion` is the better answer, `rejected` the other one. `opens` and `closes`
    are packed too: what the chat template puts before and after an environment's reply.
    """

    prompt_id: str
    tokens: bytes
    text: str
    reference: bytes
    task: str
    source: str
    completion: bytes = b""
    rejected: bytes = b""
    opens: bytes = b""
    closes: bytes = b""


class DatasetIndex(Wire, frozen=True):
    """A prepared dataset: chunks of `chunk_rows` rows; `too_long` names what was left out.

    `unknown`: rows whose prompt holds the token that stands for what the tokenizer does not know.
    """

    digest: str
    n_rows: int
    chunk_rows: int
    chunks: tuple[Ref, ...]
    too_long: tuple[str, ...]
    tokenizer_digest: str
    template_digest: str
    stop_ids: tuple[int, ...]
    pad_id: int
    vocab_size: int
    unknown: int = 0

    @property
    def warning(self) -> str:
        """What is odd with the rows, or empty."""
        if not self.unknown:
            return ""
        words = "prompts hold tokens that the model does not know (<unk>)"
        return f"{self.unknown} of {self.n_rows} {words}"


class Sampling(Wire, frozen=True):
    """How tokens are drawn. Temperature 0 is greedy; there is no top-p or top-k in training."""

    temperature: float
    stop_ids: tuple[int, ...]


class Assign(Wire, frozen=True):
    """One sample handed to one actor. `max_new_tokens` counts from the prompt's end.

    `ticket` is the actor's right to the KV of a beginning of prompt and resumed tokens; when it
    cannot be used the actor computes. `kv` without a ticket says that the prefill service has the
    prompt's KV or makes it: the actor asks for a ticket. The planner knows no tokens, so its
    `prefix_hash` is empty there. `given`: blob of the Journal that the turn begins from, in turns
    after the first; a `resume` goes before it, for it holds that and more.
    """

    key: SampleKey
    dispatch: Dispatch
    policy: PolicyRef
    prompt_id: str
    prompt_ref: PromptRef
    sampling: Sampling
    noise_key: bytes
    max_new_tokens: int
    resume: JournalRef | None = None
    kv: KvKey | None = None
    ticket: KvTicket | None = None
    given: Ref | None = None


class Span(Wire, frozen=True, array_like=True):
    """Tokens [start, end) of a response were drawn from `policy`; those in none were given."""

    start: int
    end: int
    policy: PolicyRef


class Timings(Wire, frozen=True):
    """Seconds on the actor: waiting for a slot, prefill, decode."""

    queued: float
    prefill: float
    decode: float


class Rollout(Wire, frozen=True):
    """A finished turn of a sample, with all turns before it. finish: stop | length.

    What an environment gave has action mask 0, is in no span, and has NaN for log-probability.
    """

    key: SampleKey
    dispatch: Dispatch
    prompt_id: str
    prompt_tokens: bytes
    tokens: bytes
    logprobs: bytes
    action_mask: bytes
    spans: tuple[Span, ...]
    finish: str
    timings: Timings
    actor: str

    @property
    def n_tokens(self) -> int:
        """Length of the response in tokens."""
        return len(self.tokens) // 4

    @property
    def n_chosen(self) -> int:
        """Tokens of the response that the policy chose."""
        return sum(self.action_mask)


class Journal(Wire, frozen=True, array_like=True):
    """One chunk of a dispatch's journal: tokens [start, start + n) and what belongs to them."""

    start: int
    tokens: bytes
    logprobs: bytes
    spans: tuple[Span, ...]


class Part(Wire, frozen=True, array_like=True):
    """A named reward component before and after its weight."""

    name: str
    value: float
    weighted: float


LARGEST_SCORE = 1e12
"""Largest size of a score that counts: sums of squares stay finite, in float32 too."""


class Value(Wire, frozen=True, tag="value"):
    """The answer's worth; `fault` names the answer's own fault, or is empty."""

    total: float
    parts: tuple[Part, ...]
    fault: str = ""


class Invalid(Wire, frozen=True, tag="invalid"):
    """Not the answer's fault (the verifier raised): the sample leaves its group's baseline."""

    why: str


class Error(Wire, frozen=True, tag="error"):
    """Infrastructure: retried, then counted; never a reward of 0."""

    error_class: str
    detail: str = ""


Score = Value | Invalid | Error
