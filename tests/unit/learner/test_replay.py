"""Recorded rollouts through a fresh learner."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ebbtide.errors import NotFound
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.wire import BatchManifest, Learned, decode
from services.learner.app.replay import Recorded, Replayed, replay
from services.learner.core.relayout import on_one_rank
from services.learner.engine.gang import Gang
from tests.unit.learner.builders import UID, a_batch, a_rank, job_spec

STEPS = 3


@pytest.fixture
def blobs(tmp_path: Path) -> FakeBlobs:
    return FakeBlobs(folder=tmp_path / "local")


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
    spec = job_spec(model, updates_per_batch=2, learning_rate=rate)
    return [step async for step in replay(Recorded(blobs, UID), spec, gang, folder)]


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
