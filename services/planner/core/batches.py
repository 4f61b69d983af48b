"""From a closed step to the manifest that one Learn reads (pure).

A function of the ledger alone: a planner that repeats it after a crash writes the same bytes.
"""

from __future__ import annotations

from ebbtide.rl.advantages import group_advantages
from ebbtide.rl.batching import Candidate, lay_out
from ebbtide.wire import BatchManifest, SftSlice, Value
from services.planner.core.config import Data, Grpo, JobConfig, Sft
from services.planner.core.samples import OpenStep


def freeze(step: OpenStep, *, config: JobConfig, attempt: int) -> BatchManifest:
    """The batch of a closed GRPO step: every valued sample of each group with at least two."""
    work = config.work
    assert isinstance(work, Grpo)
    layout = lay_out(
        candidates(step, work.scale),
        ranks=config.ranks,
        microbatch_tokens=config.microbatch_tokens,
        drop_zero=work.drop_zero,
        skip_zero=work.skip_zero,
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
        sft=SftSlice(data.train_ref, step.plan.data_cursor, work.updates, work.batch),
    )


def candidates(step: OpenStep, scale: str) -> list[Candidate]:
    """Samples of the training groups that have a baseline, with their advantages."""
    found: list[Candidate] = []
    for g, plan in enumerate(step.plan.groups):
        if plan.purpose == "train":
            found += _of_group(step, g, scale)
    return found


def _of_group(step: OpenStep, g: int, scale: str) -> list[Candidate]:
    valued = []
    for sample in step.in_group(g):
        scored, accepted = step.scores[sample], step.rollouts[sample]
        if scored is not None and isinstance(scored.score, Value):
            assert accepted is not None
            valued.append((accepted, scored.score.total))
    if len(valued) < 2:
        return []
    advantages = group_advantages([total for _, total in valued], scale)
    context = step.plan.groups[g].prompt_tokens
    return [
        Candidate(accepted.key, accepted.ref, accepted.n_tokens, advantage, context)
        for (accepted, _), advantage in zip(valued, advantages, strict=True)
    ]
