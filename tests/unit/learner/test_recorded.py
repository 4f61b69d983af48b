"""A job that learns from the batches of another one."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ebbtide.errors import Refused
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.wire import (
    BatchManifest,
    Learn,
    Learned,
    PolicyRef,
    RecordedBatch,
    Refusal,
)
from services.learner.app.rank import Rank
from services.learner.app.reading import Reader
from services.learner.engine.gang import Gang
from tests.unit.learner.builders import UID, a_batch, a_rank, an_sft_step, job_spec, learn_of

STEPS = 3
Step = tuple[float, PolicyRef]
"""Loss and the policy that came out."""


@pytest.fixture
def blobs(tmp_path: Path) -> FakeBlobs:
    return FakeBlobs(folder=tmp_path / "local")


async def learnt(rank: Rank, command: Learn) -> Step:
    outcome = await rank.obey(command)
    assert isinstance(outcome, Learned), outcome
    return {stat.name: stat.value for stat in outcome.stats}["loss"], outcome.policy


def policy_of(rank: Rank) -> PolicyRef:
    assert rank.progress.policy is not None
    return rank.progress.policy


async def recorded_job(gang: Gang, model: Path, blobs: FakeBlobs, folder: Path) -> list[Step]:
    rank = a_rank(gang, job_spec(model), blobs, folder)
    await rank.start(None)
    return [
        await learnt(rank, await a_batch(blobs, policy_of(rank), step=step))
        for step in range(STEPS)
    ]


async def naming(blobs: FakeBlobs, base: PolicyRef, step: int) -> Learn:
    return await learn_of(blobs, named(base, step))


def named(base: PolicyRef, step: int) -> BatchManifest:
    """What the planner of the second job, here attempt 2, sends."""
    return BatchManifest(
        job_uid=UID,
        attempt=2,
        step=step,
        base=base,
        rows=(),
        tokens=0,
        sequences=0,
        ranks=1,
        microbatches=0,
        recorded=RecordedBatch(UID, 1, step),
    )


async def second_job(
    gang: Gang, model: Path, blobs: FakeBlobs, folder: Path, *, rate: float = 1e-2
) -> Rank:
    rank = a_rank(gang, job_spec(model, learning_rate=rate), blobs, folder, attempt=2)
    await rank.start(None)
    return rank


async def test_the_same_batches_and_model_give_the_same_losses_and_policies(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    first = await recorded_job(gang, model, blobs, tmp_path)
    rank = await second_job(gang, model, blobs, tmp_path)
    second = [
        await learnt(rank, await naming(blobs, policy_of(rank), step)) for step in range(STEPS)
    ]
    assert second == first


async def test_a_job_that_learns_otherwise_goes_on_with_answers_that_its_policy_did_not_give(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    first = await recorded_job(gang, model, blobs, tmp_path)
    rank = await second_job(gang, model, blobs, tmp_path, rate=2e-2)
    second = [
        await learnt(rank, await naming(blobs, policy_of(rank), step)) for step in range(STEPS)
    ]
    assert second[0][0] == first[0][0]
    assert second[2][1] != first[2][1]


async def test_a_batch_that_was_never_recorded_is_named(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    await recorded_job(gang, model, blobs, tmp_path)
    rank = await second_job(gang, model, blobs, tmp_path)
    outcome = await rank.obey(await naming(blobs, policy_of(rank), STEPS))
    assert isinstance(outcome, Refusal)
    assert outcome.code == "invalid"
    assert "no batch of step 3 in attempt 1: lower training.totalSteps" in outcome.detail


async def test_given_rows_are_no_recorded_answers(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    rank = await second_job(gang, model, blobs, tmp_path)
    someones = rank.progress.index
    assert someones is not None
    await an_sft_step(blobs, someones, policy_of(rank))
    outcome = await rank.obey(await naming(blobs, policy_of(rank), 0))
    assert isinstance(outcome, Refusal)
    assert "sampled no answers itself" in outcome.detail


async def test_one_rank_learns_from_batches_of_several(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    rank = await second_job(gang, model, blobs, tmp_path)
    await a_batch(blobs, policy_of(rank), ranks=3)
    loss, _ = await learnt(rank, await naming(blobs, policy_of(rank), 0))
    ((wanted, _), *_) = await recorded_job(gang, model, FakeBlobs(folder=tmp_path / "b"), tmp_path)
    assert loss == pytest.approx(wanted, rel=1e-5)


async def test_another_number_of_ranks_is_refused_with_the_number_to_set(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    rank = await second_job(gang, model, blobs, tmp_path)
    await a_batch(blobs, policy_of(rank), ranks=1)
    asked = msgspec.structs.replace(named(policy_of(rank), 0), ranks=2)
    reader = Reader(blobs=blobs, spec=job_spec(model), rank=0, ranks=2)
    with pytest.raises(
        Refused, match=r"laid out for 1 ranks, this job has 2: set learner.ranks: 1"
    ):
        await reader.work(asked, attempt=2)
