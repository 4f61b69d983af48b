"""Batches, Learn and Save, publications, checkpoint manifests (protocol.md 7, 8)."""

from __future__ import annotations

from ebbtide.wire.actors import Refusal
from ebbtide.wire.base import Wire
from ebbtide.wire.identity import Fence, PolicyRef, Ref, SampleKey


class Row(Wire, frozen=True, array_like=True):
    """One sample of a batch. `rank`/`microbatch` -1: in the denominator, not computed."""

    key: SampleKey
    ref: Ref
    n_tokens: int
    advantage: float
    rank: int
    microbatch: int


class SftSlice(Wire, frozen=True):
    """Supervised work: `updates` updates of `batch` rows, from row `start` of the data order."""

    dataset: Ref
    start: int
    updates: int
    batch: int


class RecordedBatch(Wire, frozen=True):
    """The batch that another job, `uid`, froze for `step` in `attempt`."""

    uid: str
    attempt: int
    step: int


class BatchManifest(Wire, frozen=True):
    """Immutable and complete: everything that one Learn reads. Rows are in key order.

    `tokens`/`sequences`: global denominators, from the final masks, zero-variance groups
    included unless the job says drop. `microbatches`: per rank, equal on all ranks. With
    `recorded` all but the base is in the manifest that it names, and there are no rows here.
    """

    job_uid: str
    attempt: int
    step: int
    base: PolicyRef
    rows: tuple[Row, ...]
    tokens: int
    sequences: int
    ranks: int
    microbatches: int
    dropped: tuple[SampleKey, ...] = ()
    segment: int = 0
    last: bool = True
    sft: SftSlice | None = None
    recorded: RecordedBatch | None = None


class LearnToken(Wire, frozen=True):
    """Names one Learn: the same token again gets the same answer."""

    attempt: int
    step: int
    manifest_digest: str


class Learn(Wire, frozen=True, tag="learn"):
    """Update once from the manifest and publish the next policy. Idempotent by token."""

    fence: Fence
    token: LearnToken
    manifest: Ref


class Save(Wire, frozen=True, tag="save"):
    """Write checkpoint shards of the state after `step` updates. Idempotent by (attempt, step)."""

    fence: Fence
    step: int


LearnerCommand = Learn | Save


class Stat(Wire, frozen=True, array_like=True):
    """A named number of one update."""

    name: str
    value: float


class Learned(Wire, frozen=True, tag="learned"):
    """The update is done and its policy published at `index`."""

    token: LearnToken
    policy: PolicyRef
    index: Ref
    stats: tuple[Stat, ...]
    seconds: float


class Saved(Wire, frozen=True, tag="saved"):
    """Checkpoint shards are written; real only once the planner commits a manifest."""

    attempt: int
    step: int
    policy: PolicyRef
    index: Ref
    shards: tuple[Ref, ...]
    seconds: float


class Working(Wire, frozen=True, tag="working"):
    """The command is known and not done yet; ask again."""

    phase: str


LearnerReply = Learned | Saved | Working | Refusal


class PolicyTensor(Wire, frozen=True, array_like=True):
    """One tensor of a publication: canonical name, dtype, shape, file, digest of its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: str
    digest: str


class AdapterOf(Wire, frozen=True):
    """The tensors of an index are LoRA adapters, to be added to the weights of a base.

    `base`: the base's own index, its path relative to this one's folder; `digest`: of its policy;
    `scale`: what B A is multiplied by.
    """

    base: Ref
    digest: str
    scale: float


class PolicyIndex(Wire, frozen=True):
    """An immutable publication. `policy.digest` is the digest of (name, dtype, shape, digest)s.

    `aliases` maps tied names to the stored ones. The probe is a fixed prompt with the
    log-probability of each of its tokens after the first, by the learner's own model.
    With `adapter` the digest also covers that of the base.
    """

    policy: PolicyRef
    tensors: tuple[PolicyTensor, ...]
    aliases: tuple[tuple[str, str], ...]
    files: tuple[Ref, ...]
    probe_tokens: bytes
    probe_logprobs: bytes
    adapter: AdapterOf | None = None


class Manifest(Wire, frozen=True):
    """The checkpoint's root: committed by the planner with one conditional put."""

    job_uid: str
    attempt: int
    parent: Ref | None
    step: int
    policy: PolicyRef
    index: Ref
    learner_refs: tuple[Ref, ...]
    planner_ref: Ref
    data_cursor: int
    counters: tuple[Stat, ...]
