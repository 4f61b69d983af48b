"""From a closed step to the manifest that one Learn reads (pure).

A function of the ledger alone: a planner that repeats it after a crash writes the same bytes.
"""

from __future__ import annotations

import msgspec

from ebbtide.rl.advantages import group_advantages
from ebbtide.rl.batching import Candidate, lay_out
from ebbtide.rl.shaping import shaped
from ebbtide.wire import Accepted, BatchManifest, RecordedBatch, SftSlice, Value
from services.planner.core.config import Data, Grpo, JobConfig, Recorded, Sft
from services.planner.core.samples import OpenStep


def freeze(step: OpenStep, *, config: JobConfig, attempt: int) -> BatchManifest:
    """The batch of a closed GRPO step: every valued sample of each group that has a baseline."""
    work = config.work
    assert isinstance(work, Grpo)
    layout = lay_out(
        candidates(step, work),
        ranks=config.ranks,
        microbatch_tokens=config.microbatch_tokens,
        drop_zero=work.drop_zero,
        skip_zero=work.skip_zero,
        packed=config.packed,
        shared=config.shared,
    )
    return BatchManifest(
        job_uid=config.job_uid,
        attempt=attempt,
        step=step.plan.step,
        base=step.plan.policy,
        rows=layout.rows,
        tokens=layout.tokens,
        sequences=layout.sequences,
        ranks=layout.ranks,
        microbatches=layout.microbatches,
        dropped=layout.dropped,
    )


def freeze_sft(step: OpenStep, *, config: JobConfig, data: Data, attempt: int) -> BatchManifest:
    """The work of a supervised step: a slice of the data order."""
    work = config.work
    assert isinstance(work, Sft)
    part = SftSlice(data.train_ref, step.plan.data_cursor, work.updates, work.batch)
    return msgspec.structs.replace(_without_rows(step, config, attempt), sft=part)


def freeze_recorded(step: OpenStep, *, config: JobConfig, attempt: int) -> BatchManifest:
    """The work of a step that learns from what another job froze."""
    work = config.work
    assert isinstance(work, Recorded)
    named = RecordedBatch(work.uid, work.attempt, work.first + step.plan.step)
    return msgspec.structs.replace(_without_rows(step, config, attempt), recorded=named)


def _without_rows(step: OpenStep, config: JobConfig, attempt: int) -> BatchManifest:
    return BatchManifest(
        job_uid=config.job_uid,
        attempt=attempt,
        step=step.plan.step,
        base=step.plan.policy,
        rows=(),
        tokens=0,
        sequences=0,
        ranks=config.ranks,
        microbatches=0,
    )


def candidates(step: OpenStep, work: Grpo) -> list[Candidate]:
    """Samples of the training groups that have a baseline, with their advantages."""
    found: list[Candidate] = []
    for g, plan in enumerate(step.plan.groups):
        if plan.purpose == "train":
            found += _of_group(step, g, work)
    return found


def moving_groups(step: OpenStep, work: Grpo) -> int:
    """Training groups with an advantage other than 0: the others move no weight by it."""
    return len({found.key.group for found in candidates(step, work) if found.advantage != 0.0})


def _of_group(step: OpenStep, g: int, work: Grpo) -> list[Candidate]:
    valued = _valued(step, g)
    if len(valued) < (1 if work.scale == "raw" else 2):
        return []
    totals = shaped(
        [total for _, total in valued],
        [accepted.n_tokens for accepted, _ in valued],
        limit=work.max_new_tokens,
        penalty=work.length_penalty,
    )
    context = step.plan.groups[g].prompt_tokens
    return [
        Candidate(
            key=accepted.key,
            ref=accepted.ref,
            n_tokens=accepted.n_tokens,
            advantage=advantage,
            n_context=context + accepted.n_given,
            n_shared=context,
        )
        for (accepted, _), advantage in zip(
            valued, group_advantages(totals, work.scale), strict=True
        )
        if work.keep_truncated or accepted.finish != "length"
    ]


def _valued(step: OpenStep, g: int) -> list[tuple[Accepted, float]]:
    """The group's samples that have a reward, with it; errors and what is missing have none."""
    found = []
    for sample in step.in_group(g):
        scored, accepted = step.scores[sample], step.rollouts[sample]
        if scored is not None and isinstance(scored.score, Value):
            assert accepted is not None
            found.append((accepted, scored.score.total))
    return found
