"""When to save, what a manifest says, what is kept (pure)."""

from __future__ import annotations

from collections.abc import Sequence

from ebbtide import paths
from ebbtide.wire import Manifest, Ref, Saved, Stat, digest, encode
from services.planner.core.book import Book, Kept, PlannerState
from services.planner.core.config import JobConfig
from services.planner.core.effects import CommitManifest, WriteBlob
from services.planner.core.evaluation import EvalResult, best_of

_FORGET_AT_ONCE = 16


def is_due(step: int, config: JobConfig) -> bool:
    """Whether the state after `step` updates should be saved: regularly, evaluated, or last."""
    if step <= 0 or step > config.total_steps:
        return False
    regular = step % config.checkpoint_every == 0 or step == config.total_steps
    return regular or config.evaluates(step)


def seal(saved: Saved, book: Book, config: JobConfig) -> tuple[WriteBlob, CommitManifest]:
    """The two writes that make the learner's shards a checkpoint.

    A function of the ledger up to the commit of the step before, so that a planner that repeats
    it writes the same planner state, which the manifest names by its digest.
    """
    evals = tuple(found for found in book.evals if found.step < saved.step)
    state = encode(PlannerState(saved.step, book.cursor, evals))
    place = paths.planner_state(config.job_uid, saved.attempt, saved.step)
    manifest = Manifest(
        job_uid=config.job_uid,
        attempt=saved.attempt,
        parent=book.parent,
        step=saved.step,
        policy=saved.policy,
        index=saved.index,
        learner_refs=saved.shards,
        planner_ref=Ref(place, digest(state), len(state)),
        data_cursor=book.cursor,
        counters=_counters(evals),
    )
    path = paths.manifest(config.job_uid, saved.attempt, saved.step)
    return WriteBlob(place, state), CommitManifest(saved.step, path, encode(manifest))


def superseded(book: Book, config: JobConfig) -> tuple[str, ...]:
    """Blobs of checkpoints that go: all but the newest, the best evaluated, and parents."""
    best = best_of(book.evals)
    newest = sorted(kept.step for kept in book.checkpoints)[-config.retain :]
    stay = {*newest, best.step if best else -1}
    loose = (kept for kept in book.checkpoints if kept.ref.path not in book.parents)
    gone = [kept for kept in loose if kept.step not in stay]
    return tuple(path for kept in gone[-_FORGET_AT_ONCE:] for path in _blobs(kept))


def _blobs(kept: Kept) -> Sequence[str]:
    """The manifest first: without it the rest is no checkpoint."""
    return (kept.ref.path, kept.ref.path.replace("/manifests/", "/planner/"))


def _counters(evals: Sequence[EvalResult]) -> tuple[Stat, ...]:
    best = best_of(evals)
    return (Stat("best_eval", best.mean), Stat("best_step", float(best.step))) if best else ()
