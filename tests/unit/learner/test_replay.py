"""Recorded rollouts through a fresh learner."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from ebbtide import paths
from ebbtide.errors import NotFound, Refused
from ebbtide.ledger import WRITER_BYTES, encode_segment
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.wire import (
    BatchManifest,
    Epoch,
    Fence,
    Learned,
    PolicyIndex,
    PolicyRef,
    Save,
    Saved,
    decode,
)
from services.learner.app.rank import Rank
from services.learner.app.replay import Recorded, Replay, Replayed, check_out, open_replay
from services.learner.core.relayout import on_one_rank
from services.learner.engine.gang import Gang
from services.learner.engine.policy import load_policy
from tests.unit.learner.builders import UID, a_batch, a_rank, commit, job_spec
from tests.unit.learner.gangs import parameters_of

STEPS = 3


@pytest.fixture
def blobs(tmp_path: Path) -> FakeBlobs:
    return FakeBlobs(folder=tmp_path / "local")


def policy_of(rank: Rank) -> PolicyRef:
    assert rank.progress.policy is not None
    return rank.progress.policy


async def losses_of_a_job(gang: Gang, model: Path, blobs: FakeBlobs, folder: Path) -> list[float]:
    rank = a_rank(gang, job_spec(model, updates_per_batch=2), blobs, folder)
    await rank.start(None)
    losses = []
    for step in range(STEPS):
        assert rank.progress.policy is not None
        outcome = await rank.obey(await a_batch(blobs, rank.progress.policy, step=step))
        assert isinstance(outcome, Learned), outcome
        losses += [stat.value for stat in outcome.stats if stat.name == "loss"]
    return losses


async def again(
    gang: Gang, model: Path, blobs: FakeBlobs, folder: Path, *, rate: float
) -> list[Replayed]:
    learner = await opened(gang, model, blobs, folder, rate=rate)
    return [step async for step in learner.steps()]


async def opened(
    gang: Gang,
    model: Path,
    blobs: FakeBlobs,
    folder: Path,
    *,
    rate: float = 1e-2,
    attempt: int = 1,
) -> Replay:
    spec = job_spec(model, updates_per_batch=2, learning_rate=rate)
    return await open_replay(Recorded(blobs, UID, attempt), spec, gang, folder)


async def test_recorded_rollouts_make_the_same_policies_again(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    losses = await losses_of_a_job(gang, model, blobs, tmp_path)
    kept = dict(blobs.objects)
    replayed = await again(gang, model, blobs, tmp_path, rate=1e-2)
    assert [step.stats["loss"] for step in replayed] == losses
    assert [step.same for step in replayed] == [True] * STEPS
    assert blobs.objects == kept


async def test_another_learning_rate_is_seen_at_the_first_policy_that_differs(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    await losses_of_a_job(gang, model, blobs, tmp_path)
    replayed = await again(gang, model, blobs, tmp_path, rate=2e-2)
    assert [step.same for step in replayed] == [True, False, False]


async def test_an_attempt_that_recorded_nothing_is_named(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    with pytest.raises(NotFound, match="attempt 1 of"):
        await again(gang, model, blobs, tmp_path, rate=1e-2)


async def test_what_was_learnt_again_is_kept_as_the_job_published_it(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    await losses_of_a_job(gang, model, blobs, tmp_path)
    published = decode(blobs.objects[f"{paths.policy(UID, 1, STEPS)}index.msgpack"], PolicyIndex)
    learner = await opened(gang, model, blobs, tmp_path)
    assert len([step async for step in learner.steps()]) == STEPS
    assert await learner.keep(tmp_path / "kept") == published.policy
    again = load_policy(tmp_path / "kept", gang, mixed_precision=False)
    mine = parameters_of(again.module)
    wanted = parameters_of(learner.trainer._policy.module)
    assert all(np.array_equal(mine[name], wanted[name]) for name in wanted)


async def restarted(gang: Gang, model: Path, blobs: FakeBlobs, folder: Path) -> list[float]:
    """Two steps, a checkpoint, and two steps of a second attempt that begins from it."""
    spec = job_spec(model, updates_per_batch=2)
    first = a_rank(gang, spec, blobs, folder)
    await first.start(None)
    for step in range(2):
        await first.obey(await a_batch(blobs, policy_of(first), step=step))
    saved = await first.obey(Save(Fence(1, 1), 2))
    assert isinstance(saved, Saved), saved
    parent = await commit(blobs, saved)
    record = Epoch(2, 2, 1, parent)
    await blobs.put(paths.segment(UID, 0), encode_segment(0, bytes(WRITER_BYTES), [record]))
    second = a_rank(gang, spec, blobs, folder, attempt=2)
    await second.start(parent)
    losses = []
    for step in (2, 3):
        command = await a_batch(blobs, policy_of(second), step=step, attempt=2)
        outcome = await second.obey(command)
        assert isinstance(outcome, Learned), outcome
        losses += [stat.value for stat in outcome.stats if stat.name == "loss"]
    return losses


async def test_a_later_attempt_is_replayed_from_the_checkpoint_that_it_began_with(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    losses = await restarted(gang, model, blobs, tmp_path)
    learner = await opened(gang, model, blobs, tmp_path, attempt=2)
    found = [step async for step in learner.steps()]
    assert [(step.step, step.same) for step in found] == [(2, True), (3, True)]
    assert [step.stats["loss"] for step in found] == losses


async def test_an_attempt_that_the_ledger_does_not_know_is_named(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    with pytest.raises(NotFound, match="no attempt 7"):
        await opened(gang, model, blobs, tmp_path, attempt=7)


def test_what_could_not_be_kept_is_refused_before_anything_is_learnt(
    model: Path, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match="trains adapters"):
        check_out(job_spec(model, lora={"rank": 2}), tmp_path / "new")
    with pytest.raises(Refused, match="there already"):
        check_out(job_spec(model), tmp_path)


async def test_micro_batches_of_several_ranks_stay_apart_on_one(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    rank = a_rank(gang, job_spec(model), blobs, tmp_path)
    await rank.start(None)
    assert rank.progress.policy is not None
    command = await a_batch(blobs, rank.progress.policy, ranks=3, groups=4)
    before = decode(await blobs.fetch(command.manifest), BatchManifest)
    unplaced = msgspec.structs.replace(before.rows[0], rank=-1, microbatch=-1)
    after = on_one_rank(msgspec.structs.replace(before, rows=(unplaced, *before.rows[1:])))
    places = [(b.rank, b.microbatch) for b in before.rows[1:]]
    pairs = {(place, row.microbatch) for place, row in zip(places, after.rows[1:], strict=True)}
    assert len(pairs) == len(set(places)) == len({number for _, number in pairs})
    assert after.rows[0].rank == -1
    assert max(row.microbatch for row in after.rows) < after.microbatches == 3 * before.microbatches
