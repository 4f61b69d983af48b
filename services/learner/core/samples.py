"""Rollouts as the loss takes them: checked against the manifest, weighted, padded.

A position that the policy did not choose (prompt, tool output, padding) never reaches the
loss: `MicroBatch.where` selects first and everything is computed on the selection, so no
NaN of an unselected position can leak through a multiplication by 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ebbtide.errors import Refused
from ebbtide.turns import mask_of
from ebbtide.wire import (
    BatchManifest,
    PolicyRef,
    PromptRow,
    Rollout,
    Row,
    unpack_floats,
    unpack_ints,
    unpack_mask,
)

Ints = NDArray[np.int64]
Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Sample:
    """One sequence.

    `chosen`: positions in `tokens` (ascending) that the policy chose; `logprobs`: what the
    engine recorded for them; `weight`: factor of each token's loss; `prompt`: length of the
    prompt, which siblings may share (0: they may not); `group`: number of its group; `ages`: for
    each chosen token how many versions older than the batch's policy is the one that sampled it
    (None: none is older).
    """

    tokens: Ints
    chosen: Ints
    logprobs: Floats
    advantage: float
    weight: float
    prompt: int = 0
    group: int = 0
    ages: Ints | None = None


@dataclass(frozen=True)
class MicroBatch:
    """Arrays of one forward pass.

    `tokens` (rows, width), padded on the right. Over the N selected positions of all rows, in
    row order: `where` indexes the flattened (rows * width) hidden states that predict them,
    `targets` are the tokens there, `rollout` the engine's log-probabilities, `ages` how many
    versions older than the batch's policy the sampling one is. They are those of S
    sequences one after the other: `counts` (S,) of each, which is of group `groups` (S,). Not
    `real`: a dummy of weight 0 that keeps a rank in step and enters no metric. `branch`, `trunk`
    and `positions` (rows, width) say how rows of several samples are read (`core.sharing`);
    None: each is one.
    """

    tokens: Ints
    where: Ints
    targets: Ints
    rollout: Floats
    advantages: Floats
    weights: Floats
    counts: Ints
    groups: Ints
    ages: Ints
    real: bool = True
    branch: Ints | None = None
    trunk: Ints | None = None
    positions: Ints | None = None

    @property
    def computed(self) -> int:
        """Tokens that the forward pass computes, padding included."""
        return int(self.tokens.size)


@dataclass(frozen=True)
class Weighting:
    """How token losses become one number (Dr. GRPO, arXiv 2503.20783, compares them).

    token-mean: every token of the batch counts alike. sequence-mean: every sequence counts
    alike. dr-grpo: every token counts alike, over a constant budget of `limit` tokens each.
    """

    aggregation: str
    tokens: int
    sequences: int
    limit: int

    def of(self, n_tokens: int) -> float:
        """Weight of one token of a sequence with `n_tokens` of them."""
        match self.aggregation:
            case "token-mean":
                return 1.0 / max(1, self.tokens)
            case "sequence-mean":
                return 1.0 / (max(1, self.sequences) * max(1, n_tokens))
            case "dr-grpo":
                return 1.0 / (max(1, self.sequences) * self.limit)
            case unknown:
                raise Refused(f"unknown aggregation {unknown!r}", field="/algorithm/aggregation")


def group_numbers(manifest: BatchManifest) -> dict[tuple[int, int], int]:
    """A number for each group of the batch, from 0, the same on every rank."""
    keys = dict.fromkeys((row.key.step_issued, row.key.group) for row in manifest.rows)
    return {key: number for number, key in enumerate(keys)}


def my_rows(manifest: BatchManifest, rank: int) -> list[Row]:
    """The rows that `rank` computes, in the manifest's order."""
    return [row for row in manifest.rows if row.rank == rank]


def check_manifest(manifest: BatchManifest, *, attempt: int, ranks: int) -> None:
    """Raise Refused unless this gang can run `manifest` as it stands."""
    if manifest.attempt != attempt:
        raise Refused(f"manifest of attempt {manifest.attempt}, this is {attempt}", field="attempt")
    if manifest.ranks != ranks and manifest.sft is None:
        raise Refused(f"laid out for {manifest.ranks} ranks, there are {ranks}", field="ranks")
    if manifest.segment != 0 or not manifest.last:
        # The planner freezes a step's batch whole; the field is there for batches that stream.
        raise Refused(
            f"segment {manifest.segment} of a batch in several segments: send the step's batch as"
            " one, segment 0 and the last",
            field="segment",
        )
    out = [r for r in manifest.rows if r.rank >= ranks or r.microbatch >= manifest.microbatches]
    if out:
        raise Refused(f"{out[0].key} lies outside the layout", field="rows")
    if sum(row.n_tokens for row in manifest.rows) != manifest.tokens:
        raise Refused("tokens is not the sum over rows", field="tokens")
    if len(manifest.rows) != manifest.sequences:
        raise Refused("sequences is not the number of rows", field="sequences")


def sample_of(
    row: Row,
    rollout: Rollout,
    base: PolicyRef,
    weighting: Weighting,
    *,
    group: int = 0,
    max_age: int = 0,
) -> Sample:
    """Check `rollout` against its row and take what the loss needs; raises Refused.

    `max_age`: versions that a token's policy may be older than `base`.
    """
    prompt, response = unpack_ints(rollout.prompt_tokens), unpack_ints(rollout.tokens)
    logprobs, mask = unpack_floats(rollout.logprobs), unpack_mask(rollout.action_mask)
    _check_rollout(row, rollout, (len(prompt), len(response), len(logprobs), len(mask)))
    ages = _ages(row, rollout, base, max_age)
    chosen = np.flatnonzero(mask)
    if len(chosen) != row.n_tokens:
        raise Refused(f"{row.key}: mask has {len(chosen)} tokens, the row {row.n_tokens}")
    if not np.array_equal(mask, mask_of(rollout.spans, len(response))):
        raise Refused(f"{row.key}: the mask disagrees with the spans, which say what was drawn")
    if not np.isfinite(logprobs[chosen]).all():
        raise Refused(f"{row.key}: a token that the policy drew has no log-probability")
    return Sample(
        tokens=np.concatenate([prompt, response]).astype(np.int64),
        chosen=chosen + len(prompt),
        logprobs=logprobs[chosen].astype(np.float32),
        advantage=row.advantage,
        weight=weighting.of(row.n_tokens),
        prompt=len(prompt),
        group=group,
        ages=ages[chosen],
    )


def _check_rollout(row: Row, rollout: Rollout, sizes: tuple[int, int, int, int]) -> None:
    prompt, response, logprobs, mask = sizes
    if rollout.key != row.key:
        raise Refused(f"{row.key}: the blob holds {rollout.key}")
    if prompt == 0 or not response == logprobs == mask:
        raise Refused(f"{row.key}: sizes of prompt, tokens, logprobs, mask are {sizes}")


def _ages(row: Row, rollout: Rollout, base: PolicyRef, limit: int) -> Ints:
    """Of each token of the response, from the policy that the engine stamped on it."""
    ages = np.zeros(rollout.n_tokens, dtype=np.int64)
    for span in rollout.spans:
        if span.policy == base:
            continue
        age = base.n - span.policy.n
        if not 0 < age <= limit:
            allowed = f" (taken are {limit} versions before it)" if limit else ""
            detail = f"{row.key}: sampled from {span.policy}, the batch's base is {base}{allowed}"
            raise Refused(detail)
        ages[span.start : span.end] = age
    return ages


def supervised_sample(row: PromptRow, weight: float) -> Sample:
    """Return a prompt with its demonstration: the loss is on the completion alone."""
    prompt, completion = unpack_ints(row.tokens), unpack_ints(row.completion)
    if not len(prompt) or not len(completion):
        raise Refused(f"row {row.prompt_id}: sft needs a prompt and a completion", field="dataset")
    return Sample(
        tokens=np.concatenate([prompt, completion]).astype(np.int64),
        chosen=np.arange(len(prompt), len(prompt) + len(completion)),
        logprobs=np.zeros(len(completion), np.float32),
        advantage=1.0,
        weight=weight,
    )


def pair_samples(row: PromptRow, number: int) -> tuple[Sample, Sample]:
    """The better and the worse answer of a pair, told apart by the sign of their advantage.

    `number`: of the pair in its update. The weight is 1: the loss is not a sum over tokens.
    """
    prompt = unpack_ints(row.tokens)
    answers = (unpack_ints(row.completion), unpack_ints(row.rejected))
    if not len(prompt) or not all(len(answer) for answer in answers):
        detail = f"row {row.prompt_id}: a pair needs a prompt, a better and a worse answer"
        raise Refused(detail, field="dataset")
    better, worse = (
        Sample(
            tokens=np.concatenate([prompt, answer]).astype(np.int64),
            chosen=np.arange(len(prompt), len(prompt) + len(answer)),
            logprobs=np.zeros(len(answer), np.float32),
            advantage=sign,
            weight=1.0,
            group=number,
        )
        for answer, sign in zip(answers, (1.0, -1.0), strict=True)
    )
    return better, worse


def pad(samples: Sequence[Sample], *, multiple: int = 1) -> MicroBatch:
    """One micro-batch of `samples`; its width is rounded up to `multiple` tokens.

    Without samples it is a dummy.
    """
    real = bool(samples)
    samples = samples or [DUMMY]
    width = -(-max(len(s.tokens) for s in samples) // multiple) * multiple
    tokens = np.zeros((len(samples), width), dtype=np.int64)
    for i, sample in enumerate(samples):
        tokens[i, : len(sample.tokens)] = sample.tokens
    counts = [len(s.chosen) for s in samples]
    return MicroBatch(
        tokens=tokens,
        where=np.concatenate([i * width + s.chosen - 1 for i, s in enumerate(samples)]),
        targets=np.concatenate([s.tokens[s.chosen] for s in samples]),
        rollout=np.concatenate([s.logprobs for s in samples]),
        advantages=np.repeat([s.advantage for s in samples], counts).astype(np.float32),
        weights=np.repeat([s.weight for s in samples], counts).astype(np.float32),
        counts=np.asarray(counts, dtype=np.int64),
        groups=np.asarray([s.group for s in samples], dtype=np.int64),
        ages=np.concatenate([_ages_of(s) for s in samples]),
        real=real,
    )


def _ages_of(sample: Sample) -> Ints:
    return np.zeros(len(sample.chosen), np.int64) if sample.ages is None else sample.ages


DUMMY = Sample(
    tokens=np.zeros(2, dtype=np.int64),
    chosen=np.ones(1, dtype=np.int64),
    logprobs=np.zeros(1, dtype=np.float32),
    advantage=0.0,
    weight=0.0,
)
