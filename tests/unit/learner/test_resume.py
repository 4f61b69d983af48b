"""A learner that was killed goes on with the same bits."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ebbtide.testing.blobs import FakeBlobs
from ebbtide.wire import Fence, Learned, Ref, Refusal, Save, Saved
from services.learner.app.rank import Rank
from services.learner.engine.gang import Gang
from tests.unit.learner.builders import a_batch, a_rank, commit, job_spec

CRITIC = {"learning_rate": 1e-3, "warmup_steps": 1}
ADAPTIVE = {"kl_coefficient": 0.1, "kl": {"target": 1e-3}}
ALGORITHMS: list[dict[str, Any]] = [
    {"type": "grpo", "kl_coefficient": 0.1, "entropy_coefficient": 0.01},
    {"type": "dapo"},
    {"type": "gspo"},
    {"type": "cispo", "mismatch": {"weight": "token", "reject": "geometric"}},
    {"type": "rloo", **ADAPTIVE},
    {"type": "reinforce-plus-plus", **ADAPTIVE},
    {"type": "ppo", "critic": CRITIC, **ADAPTIVE},
]
TIMES = ("read_seconds", "compute_seconds", "publish_seconds", "publish_bytes")


@pytest.fixture
def blobs(tmp_path: Path) -> FakeBlobs:
    return FakeBlobs(folder=tmp_path / "local")


async def step(rank: Rank, blobs: FakeBlobs, number: int) -> Learned | Refusal:
    policy = rank.progress.policy
    assert policy is not None
    outcome = await rank.obey(await a_batch(blobs, policy, step=number, attempt=policy.attempt))
    assert not isinstance(outcome, Saved)
    return outcome


async def figures(rank: Rank, blobs: FakeBlobs, number: int) -> Mapping[str, float]:
    outcome = await step(rank, blobs, number)
    assert isinstance(outcome, Learned), outcome
    return {stat.name: stat.value for stat in outcome.stats if stat.name not in TIMES}


async def save(rank: Rank, number: int) -> Saved:
    outcome = await rank.obey(Save(Fence(1, 1), number))
    assert isinstance(outcome, Saved), outcome
    return outcome


async def until_committed(rank: Rank, blobs: FakeBlobs) -> Ref:
    await rank.start(None)
    await step(rank, blobs, 0)
    return await commit(blobs, await save(rank, 1))


async def before_the_next_update(_rank: Rank, _blobs: FakeBlobs) -> None:
    pass


async def between_update_and_publication(rank: Rank, blobs: FakeBlobs) -> None:
    blobs.outcomes = iter(["ok"] * 13 + ["fail"] * 9)  # the batch is written, the policy is not
    assert isinstance(await step(rank, blobs, 1), Refusal)
    blobs.outcomes = iter(())


async def after_the_publication(rank: Rank, blobs: FakeBlobs) -> None:
    assert isinstance(await step(rank, blobs, 1), Learned)


async def in_the_middle_of_a_checkpoint(rank: Rank, blobs: FakeBlobs) -> None:
    await after_the_publication(rank, blobs)
    blobs.outcomes = iter(["ok", "fail"])
    assert isinstance(await rank.obey(Save(Fence(1, 1), 2)), Refusal)


async def before_the_commit_of_a_checkpoint(rank: Rank, blobs: FakeBlobs) -> None:
    await after_the_publication(rank, blobs)
    await save(rank, 2)


POINTS = (
    before_the_next_update,
    between_update_and_publication,
    after_the_publication,
    in_the_middle_of_a_checkpoint,
    before_the_commit_of_a_checkpoint,
)


@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=lambda a: a["type"])
async def test_killed_in_the_middle_of_a_checkpoint_every_algorithm_goes_on_bit_for_bit(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path, algorithm: dict[str, Any]
) -> None:
    spec = job_spec(model, algorithm=algorithm, updates_per_batch=2)
    first = a_rank(gang, spec, blobs, tmp_path)
    manifest = await until_committed(first, blobs)
    expected = [await figures(first, blobs, number) for number in (1, 2)]
    blobs.outcomes = iter(["ok", "fail"])
    assert isinstance(await first.obey(Save(Fence(1, 1), 3)), Refusal)
    other = a_rank(gang, spec, blobs, tmp_path, attempt=2)
    await other.start(manifest)
    assert [await figures(other, blobs, number) for number in (1, 2)] == expected


@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.__name__)
async def test_wherever_it_is_killed_a_learner_goes_on_bit_for_bit(
    gang: Gang,
    model: Path,
    blobs: FakeBlobs,
    tmp_path: Path,
    point: Callable[[Rank, FakeBlobs], Awaitable[None]],
) -> None:
    spec = job_spec(model, updates_per_batch=2)
    killed, whole = (a_rank(gang, spec, blobs, tmp_path, attempt=n) for n in (1, 3))
    manifest = await until_committed(killed, blobs)
    await whole.start(manifest)
    await point(killed, blobs)
    again = a_rank(gang, spec, blobs, tmp_path, attempt=2)
    await again.start(manifest)
    assert await figures(again, blobs, 1) == await figures(whole, blobs, 1)
