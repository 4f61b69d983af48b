"""A sample as a request to vLLM, and what vLLM answers as tokens and log-probabilities."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from vllm import SamplingParams
from vllm.inputs.engine import TokensInput, tokens_input
from vllm.outputs import RequestOutput
from vllm.sampling_params import RequestOutputKind

from ebbtide.engines.samples import Sample
from ebbtide.ports import EngineCut, EngineFinished, NewTokens
from ebbtide.wire import Journal, PolicyRef

_SEED_MASK = (1 << 63) - 1


def seed_of(noise_key: bytes, start: int) -> int:
    """Seed of the draws from response token `start` on (protocol.md 10).

    vLLM's generator knows no positions: with the key alone a sample that is resumed would draw
    the noise of its beginning again.
    """
    digest = hashlib.sha256(noise_key + start.to_bytes(8, "little")).digest()
    return int.from_bytes(digest[:8], "little") & _SEED_MASK


def prompt_of(sample: Sample, policy: PolicyRef) -> TokensInput:
    """Prompt and resumed tokens. The salt keys vLLM's prefix cache by the policy's content."""
    return tokens_input([int(t) for t in sample.text], cache_salt=policy.digest)


def params_of(sample: Sample, stream_tokens: int) -> SamplingParams:
    """Draws as the sample asks; only its own stop ids end it."""
    sampling, start = sample.admission.assign.sampling, len(sample.tokens)
    return SamplingParams(
        temperature=sampling.temperature,
        seed=seed_of(sample.admission.assign.noise_key, start) if sampling.temperature else None,
        max_tokens=sample.limit - start,
        stop_token_ids=list(sampling.stop_ids),
        ignore_eos=True,
        logprobs=0,
        flat_logprobs=True,
        detokenize=False,
        output_kind=RequestOutputKind.DELTA,
        stream_interval=stream_tokens,
    )


def probe_params() -> SamplingParams:
    """Scores a prompt; the one token that vLLM draws is of no interest."""
    return SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, detokenize=False)


def prompt_scores(output: RequestOutput) -> np.ndarray:
    """Log-probabilities of all prompt tokens but the first, float32."""
    scored = output.prompt_logprobs
    assert scored is not None, "it was asked for"
    tokens = output.prompt_token_ids or []
    pairs = zip(scored[1:], tokens[1:], strict=True)  # nothing comes before the first
    values = [entry[token].logprob for entry, token in pairs if entry is not None]
    return np.asarray(values, dtype=np.float32)


@dataclass(slots=True)
class Live:
    """A sample that vLLM has. Its new tokens gather here until they are reported."""

    sample: Sample
    policy: PolicyRef
    name: str
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    told: int = 0
    cached: int = 0
    """Tokens of the text that the prefix cache had; known with the first output."""
    cut: bool = False
    finish: str = ""
    queued: float = 0.0
    prefill: float = 0.0
    decode: float = 0.0

    def take(self, output: RequestOutput) -> int:
        """Add what is new; returns how many tokens that was. Raises if a value is not finite."""
        one, before = output.outputs[0], len(self.tokens)
        self.tokens.extend(one.token_ids)
        if one.token_ids:
            values = _drawn(one.logprobs, one.token_ids)
            if not np.isfinite(values).all():
                raise ArithmeticError("the model's logits are not finite")
            self.logprobs.extend(values)
        self.cached = output.num_cached_tokens or 0
        if output.finished:
            self.finish = one.finish_reason or ""
            self._time(output)
        return len(self.tokens) - before

    def _time(self, output: RequestOutput) -> None:
        times = output.metrics
        if times is None or not times.scheduled_ts:
            return
        self.queued = times.scheduled_ts - times.queued_ts
        if times.first_token_ts:
            self.prefill = times.first_token_ts - times.scheduled_ts
            self.decode = times.last_token_ts - times.first_token_ts

    def news(self) -> list[NewTokens]:
        """What was not reported yet, as one event; none if there is nothing."""
        if self.told == len(self.tokens):
            return []
        first = len(self.sample.tokens)
        start, end = first + self.told, first + len(self.tokens)
        chunk = Journal(
            start=start,
            tokens=np.asarray(self.tokens[self.told :], dtype=np.int32).tobytes(),
            logprobs=np.asarray(self.logprobs[self.told :], dtype=np.float32).tobytes(),
            spans=self.sample.spans(start, end, self.policy),
        )
        self.told = len(self.tokens)
        return [NewTokens(self.sample.dispatch, chunk)]

    def ended(self) -> EngineFinished | EngineCut:
        """How it ended: cut if vLLM aborted it, finished otherwise."""
        tokens = np.concatenate([self.sample.tokens, np.asarray(self.tokens, dtype=np.int32)])
        logprobs = np.concatenate(
            [self.sample.logprobs, np.asarray(self.logprobs, dtype=np.float32)]
        )
        spans = self.sample.spans(0, len(tokens), self.policy)
        dispatch, texts = self.sample.dispatch, (tokens.tobytes(), logprobs.tobytes())
        if self.finish == "abort":
            return EngineCut(dispatch, *texts, spans)
        assert self.finish in ("stop", "length"), self.finish
        return EngineFinished(
            dispatch, *texts, spans, self.finish, self.queued, self.prefill, self.decode
        )


def _drawn(scored: object, tokens: Sequence[int]) -> list[float]:
    """Of each new token the log-probability: vLLM lists the drawn one alone, or first."""
    starts, values = getattr(scored, "start_indices"), getattr(scored, "logprobs")  # noqa: B009
    assert len(starts) == len(tokens), "one entry for each token"
    return [values[start] for start in starts]
