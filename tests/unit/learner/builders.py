"""Whole little jobs for the learner's shell, over the fake blob store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ebbtide import paths
from ebbtide.ports import Blobs
from ebbtide.rl.batching import Candidate, lay_out
from ebbtide.spec import RLHFJobSpec
from ebbtide.testing.clock import VirtualClock
from ebbtide.wire import (
    BatchManifest,
    DatasetIndex,
    Dispatch,
    Fence,
    Learn,
    LearnToken,
    Manifest,
    PolicyRef,
    PromptRow,
    Ref,
    Rollout,
    SampleKey,
    Saved,
    SftSlice,
    Span,
    Timings,
    encode,
    pack_floats,
    pack_ints,
    pack_mask,
)
from services.learner.app.lane import Lane
from services.learner.app.rank import Rank
from services.learner.app.reading import Reader
from services.learner.engine.gang import Gang
from services.learner.engine.publishing import write_skeleton
from services.learner.engine.trainer import DTYPES, build_trainer
from tests.unit.learner.gangs import VOCABULARY

UID = "job-uid"


def job_spec(
    model: Path, *, sft: bool = False, algorithm: dict[str, Any] | None = None, **training: Any
) -> RLHFJobSpec:
    """A GRPO job (or a supervised one, or another `algorithm`) on `model`."""
    algorithm = algorithm or {"type": "grpo"}
    if sft:
        algorithm = {"type": "sft", "batch_size": 4, "updates_per_step": 3}
    sizes = {"total_steps": 8, "learning_rate": 1e-2, "micro_batch_tokens": 64, **training}
    return RLHFJobSpec.model_validate(
        {
            "model": {"uri": str(model)},
            "dataset": {"train": {"type": "jsonl", "uri": "rows.jsonl"}},
            "algorithm": algorithm,
            "training": sizes,
            "reward": {"components": ({"type": "exact", "name": "exact"},)},
            "learner": {"ranks": 1, "device": "cpu"},
        }
    )


def a_rank(
    gang: Gang,
    spec: RLHFJobSpec,
    blobs: Blobs,
    folder: Path,
    *,
    attempt: int = 1,
    patience: float = 3600.0,
) -> Rank:
    """A rank that has not started, staging in `folder`."""
    model = Path(spec.model.uri)
    skeleton = folder / f"skeleton-{attempt}"
    write_skeleton(
        skeleton,
        model=model,
        tokenizer=model,
        chat_template=None,
        dtype=DTYPES["float32"],
        scores=spec.algorithm.type == "reward-model",
    )
    trainer = build_trainer(spec, gang, model)
    return Rank(
        uid=UID,
        attempt=attempt,
        trainer=trainer,
        reader=Reader(blobs=blobs, spec=spec, rank=gang.rank, ranks=gang.size, layout=trainer.rows),
        lane=Lane(threads=1),
        blobs=blobs,
        clock=VirtualClock(),
        skeleton=skeleton,
        staging=folder,
        verify=spec.checkpoint.verify,
        patience=patience,
    )


async def a_batch(
    blobs: Blobs,
    base: PolicyRef,
    *,
    step: int = 0,
    attempt: int = 1,
    ranks: int = 1,
    groups: int = 3,
    drawn_from: PolicyRef | None = None,
) -> Learn:
    """Rollouts and their manifest in `blobs`; returns the command for it."""
    rng = np.random.default_rng(step)
    candidates = [
        await _rollout(blobs, rng, SampleKey(UID, step, g, i), drawn_from or base)
        for g in range(groups)
        for i in range(4)
    ]
    layout = lay_out(candidates, ranks=ranks, microbatch_tokens=64)
    manifest = BatchManifest(
        job_uid=UID,
        attempt=attempt,
        step=step,
        base=base,
        rows=layout.rows,
        tokens=layout.tokens,
        sequences=layout.sequences,
        ranks=ranks,
        microbatches=layout.microbatches,
    )
    return await learn_of(blobs, manifest)


async def learn_of(blobs: Blobs, manifest: BatchManifest) -> Learn:
    """Store `manifest` and return the command for it."""
    place = paths.batch(UID, manifest.attempt, manifest.step)
    ref = await blobs.put(place, encode(manifest))
    token = LearnToken(manifest.attempt, manifest.step, ref.digest)
    return Learn(Fence(manifest.attempt, 1), token, ref)


async def _rollout(
    blobs: Blobs, rng: np.random.Generator, key: SampleKey, policy: PolicyRef
) -> Candidate:
    prompt, n = int(rng.integers(1, 8)), int(rng.integers(1, 12))
    rollout = Rollout(
        key=key,
        dispatch=Dispatch(1, 1, key.index),
        prompt_id="p",
        prompt_tokens=pack_ints(rng.integers(0, VOCABULARY, prompt)),
        tokens=pack_ints(rng.integers(0, VOCABULARY, n)),
        logprobs=pack_floats(np.full(n, -3.9)),
        action_mask=pack_mask(np.ones(n)),
        spans=(Span(0, n, policy),),
        finish="stop",
        timings=Timings(0, 0, 0),
        actor="a",
    )
    ref = await blobs.put(paths.rollouts(key, rollout.dispatch), encode(rollout))
    return Candidate(key, ref, n, 1.0 if key.index % 2 else -1.0, prompt)


async def a_dataset(blobs: Blobs, n: int = 40) -> Ref:
    """A prepared dataset with completions, in chunks of 16."""
    rng = np.random.default_rng(1)
    rows = [_row(rng, i) for i in range(n)]
    chunks = [
        await blobs.put(f"datasets/d/{i}", encode(tuple(rows[i : i + 16]))) for i in range(0, n, 16)
    ]
    index = DatasetIndex(
        digest="d",
        n_rows=n,
        chunk_rows=16,
        chunks=tuple(chunks),
        too_long=(),
        tokenizer_digest="",
        template_digest="",
        stop_ids=(1,),
        pad_id=0,
        vocab_size=VOCABULARY,
    )
    return await blobs.put("datasets/d/index.msgpack", encode(index))


def _row(rng: np.random.Generator, i: int) -> PromptRow:
    first = int(rng.integers(0, VOCABULARY))
    return PromptRow(
        prompt_id=f"p{i}",
        tokens=pack_ints([first] * int(rng.integers(1, 6))),
        text="",
        reference=b"",
        task="t",
        source="s",
        completion=pack_ints([(first + k) % VOCABULARY for k in range(1, 8)]),
        rejected=pack_ints([(first - k) % VOCABULARY for k in range(1, 6)]),
    )


async def an_sft_step(blobs: Blobs, dataset: Ref, base: PolicyRef, *, step: int = 0) -> Learn:
    """Three supervised updates of four rows each."""
    part = SftSlice(dataset, start=12 * step, updates=3, batch=4)
    manifest = BatchManifest(
        job_uid=UID,
        attempt=1,
        step=step,
        base=base,
        rows=(),
        tokens=0,
        sequences=0,
        ranks=1,
        microbatches=0,
        sft=part,
    )
    return await learn_of(blobs, manifest)


async def commit(blobs: Blobs, saved: Saved) -> Ref:
    """What the planner does with a checkpoint's shards."""
    manifest = Manifest(
        job_uid=UID,
        attempt=saved.attempt,
        parent=None,
        step=saved.step,
        policy=saved.policy,
        index=saved.index,
        learner_refs=saved.shards,
        planner_ref=saved.index,
        data_cursor=0,
        counters=(),
    )
    return await blobs.put(paths.manifest(UID, saved.attempt, saved.step), encode(manifest))
