"""A learner that was killed goes on with the same bits, and on other numbers of ranks alike."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from ebbtide.testing.blobs import FakeBlobs
from ebbtide.wire import Fence, Learned, Ref, Refusal, Save, Saved, decode, encode
from services.learner.app.rank import Rank
from services.learner.core.progress import Progress
from services.learner.engine.gang import Gang
from services.learner.engine.trainer import Work, build_trainer
from tests.unit.learner.builders import a_batch, a_rank, commit, job_spec
from tests.unit.learner.gangs import lay, run_ranks, samples

CRITIC = {"learning_rate": 1e-3, "warmup_steps": 1}
ADAPTIVE = {"kl_coefficient": 0.1, "kl": {"target": 1e-3}}
ALGORITHMS: list[dict[str, Any]] = [
    {"type": "grpo", "kl_coefficient": 0.1, "entropy_coefficient": 0.01},
    {"type": "dapo"},
    {"type": "gspo", "decoupled": {"proximal": "interpolated"}},
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


def one_more(gang: Gang, model: str, folder: str, number: int) -> dict[str, float]:
    """Restore what `number` updates made, on however many ranks, do one more and save it."""
    algorithm = {"type": "ppo", "critic": {"learning_rate": 1e-3}, **ADAPTIVE}
    spec = job_spec(Path(model), algorithm=algorithm, learning_rate=1e-3, updates_per_batch=2)
    trainer = build_trainer(spec, gang, Path(model))
    before = Path(folder) / f"{number}"
    if number:
        progress = decode((before / "progress").read_bytes(), Progress)
        trainer.restore(before / "shards", progress)
    rows = samples(12, seed=number)
    stats = trainer.learn(Work(batches=lay(rows, rank=gang.rank, ranks=gang.size)))
    after = Path(folder) / f"{number + 1}"
    after.mkdir(exist_ok=True)
    trainer.save(after / "shards")
    if gang.leads:
        progress = Progress(updates=trainer.counts[0], course=trainer.course)
        (after / "progress").write_bytes(encode(progress))
    return stats


def test_a_gang_that_changes_its_size_at_each_resume_has_the_losses_of_one_rank(
    gang: Gang, model: Path, tmp_path: Path
) -> None:
    for name in ("one", "changing", "2", "4"):
        (tmp_path / name).mkdir()
    alone = [one_more(gang, str(model), str(tmp_path / "one"), n) for n in range(4)]
    where = (str(model), str(tmp_path / "changing"))
    changing = [
        one_more(gang, *where, 0),
        run_ranks(2, one_more, tmp_path / "2", *where, 1)[0],
        run_ranks(4, one_more, tmp_path / "4", *where, 2)[0],
        one_more(gang, *where, 3),
    ]
    for name in ("loss", "value_loss", "kl", "kl_coefficient"):
        found, wanted = ([stats[name] for stats in each] for each in (changing, alone))
        assert found == pytest.approx(wanted, abs=1e-5), name
