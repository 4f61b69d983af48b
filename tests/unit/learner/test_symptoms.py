"""What others saw go wrong between engine and learner, sought here with the real engine.

Each test is named after the symptom; docs/threads.md says in which project it was reported.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from benchmarks.learning_curves.loop import UID, Loop, open_rank
from ebbtide import paths
from ebbtide.errors import Corrupt
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.wire import Fence, Manifest, Ref, Save, Saved, encode
from services.learner.engine.gang import Gang
from tests.unit.learner.builders import job_spec

PROMPTS = [[5, 6, 7], [8, 9, 10, 11], [12, 13], [14, 15, 16]]
SHAPE = {"max_response_tokens": 8, "temperature": 0.6}
NOTHING = 1e-7
"""Nats per token that rounding makes; a stale weight or a wrong temperature makes 1e-3 and more."""


def even(_prompt: Sequence[int], answer: Sequence[int]) -> float:
    return sum(token % 2 == 0 for token in answer) / len(answer)


@pytest.fixture
def blobs(tmp_path: Path) -> FakeBlobs:
    return FakeBlobs(folder=tmp_path / "local")


async def a_loop(
    gang: Gang, model: Path, blobs: FakeBlobs, folder: Path, *, rate: float = 1e-2
) -> Loop:
    spec = job_spec(model, learning_rate=rate, **SHAPE)
    rank = open_rank(spec, gang, blobs, folder)
    await rank.start(None)
    return Loop(spec, rank, blobs, stop=1)


@pytest.fixture
async def loop(gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path) -> AsyncIterator[Loop]:
    made = await a_loop(gang, model, blobs, tmp_path)
    yield made
    await made.close()


async def mismatch(loop: Loop, steps: Sequence[int]) -> list[float]:
    stepped = [await loop.step(step, PROMPTS, even) for step in steps]
    assert all(each.stats["mismatch_alarm"] == 0 for each in stepped)
    return [each.stats["mismatch_kl"] for each in stepped]


async def test_at_a_temperature_other_than_one_ratios_are_right_from_step_to_step(
    loop: Loop,
) -> None:
    before = loop.rank.progress.policy
    assert max(await mismatch(loop, range(4))) < NOTHING
    assert before is not None
    assert loop.rank.progress.policy is not None
    assert before.digest != loop.rank.progress.policy.digest


async def test_with_a_learning_rate_of_nothing_the_mismatch_stays_flat(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    still = await a_loop(gang, model, blobs, tmp_path, rate=0.0)
    assert max(await mismatch(still, range(8))) < NOTHING
    await still.close()


async def test_an_engine_that_slept_samples_from_the_new_weights(loop: Loop) -> None:
    await mismatch(loop, [0])
    await loop.engine.sleep()
    assert max(await mismatch(loop, [1, 2])) < NOTHING


async def test_weights_that_stay_behind_are_never_sampled_from(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    await mismatch(loop, [0])
    holder = loop.engine._model
    kept = {name: p.clone() for name, p in holder.runner.model.named_parameters()}
    fill = holder.fill
    monkeypatch.setattr(holder, "fill", lambda folder, _, aliases: fill(folder, kept, aliases))
    with pytest.raises(Corrupt, match="probe of policy 1 is off"):
        await loop.step(1, PROMPTS, even)


async def test_after_a_resume_the_first_samples_are_the_restored_policys(
    loop: Loop, gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    await mismatch(loop, [0, 1])
    kept = await committed(loop, blobs)
    spec = job_spec(model, **SHAPE)
    rank = open_rank(spec, gang, blobs, tmp_path, attempt=2)
    await rank.start(kept)
    resumed = Loop(spec, rank, blobs, stop=1)
    assert max(await mismatch(resumed, [2])) < NOTHING
    await resumed.close()


async def committed(loop: Loop, blobs: FakeBlobs) -> Ref:
    saved = await loop.rank.obey(Save(Fence(1, 1), 2))
    assert isinstance(saved, Saved), saved
    manifest = Manifest(
        job_uid=UID,
        attempt=1,
        parent=None,
        step=2,
        policy=saved.policy,
        index=saved.index,
        learner_refs=saved.shards,
        planner_ref=saved.index,
        data_cursor=0,
        counters=(),
    )
    return await blobs.put(paths.manifest(UID, 1, 2), encode(manifest))
