"""One rank over the fake blob store: learning, publishing, saving, restoring."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from ebbtide import paths
from ebbtide.engines.publication import read_publication
from ebbtide.errors import Corrupt
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.wire import (
    BatchManifest,
    Fence,
    Learned,
    PolicyIndex,
    PolicyRef,
    Ref,
    Refusal,
    Save,
    Saved,
    decode,
    unpack_floats,
)
from services.learner.app.rank import Rank
from services.learner.core.progress import Course
from services.learner.engine.gang import Gang
from tests.unit.learner.builders import (
    UID,
    a_batch,
    a_dataset,
    a_rank,
    an_sft_step,
    commit,
    job_spec,
    learn_of,
)


@pytest.fixture
def blobs(tmp_path: Path) -> FakeBlobs:
    return FakeBlobs(folder=tmp_path / "local")


@pytest.fixture
async def rank(gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path) -> Rank:
    made = a_rank(gang, job_spec(model), blobs, tmp_path)
    await made.start(None)
    return made


def policy_of(rank: Rank) -> PolicyRef:
    assert rank.progress.policy is not None
    return rank.progress.policy


async def learned(rank: Rank, blobs: FakeBlobs, step: int = 0) -> Learned:
    attempt = policy_of(rank).attempt
    command = await a_batch(blobs, policy_of(rank), step=step, attempt=attempt)
    outcome = await rank.obey(command)
    assert isinstance(outcome, Learned), outcome
    return outcome


async def saved(rank: Rank, step: int) -> Saved:
    outcome = await rank.obey(Save(Fence(1, 1), step))
    assert isinstance(outcome, Saved), outcome
    return outcome


async def test_the_initial_policy_is_published_as_version_0(rank: Rank, blobs: FakeBlobs) -> None:
    assert policy_of(rank).n == 0
    names = [p.rpartition("/")[2] for p in await blobs.list(paths.policy(UID, 1, 0))]
    assert {"config.json", "model.safetensors", "index.msgpack"} <= set(names)


async def test_an_update_makes_another_policy_with_one_more_version(
    rank: Rank, blobs: FakeBlobs
) -> None:
    before = policy_of(rank)
    outcome = await learned(rank, blobs)
    assert outcome.policy.n == 1
    assert outcome.policy != before
    assert outcome.policy == policy_of(rank)


async def test_learning_rate_0_publishes_a_new_version_with_the_same_digest(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    still = a_rank(gang, job_spec(model, learning_rate=0.0), blobs, tmp_path)
    await still.start(None)
    before = policy_of(still)
    outcome = await learned(still, blobs)
    assert outcome.policy == before
    assert outcome.policy.n == 1


async def test_the_publication_is_an_export_that_transformers_agrees_with(
    rank: Rank, blobs: FakeBlobs, tmp_path: Path
) -> None:
    outcome = await learned(rank, blobs)
    for path in await blobs.list(paths.policy(UID, 1, 1)):
        await blobs.local(await blobs.put(path, blobs.objects[path]))
    folder = tmp_path / "local" / paths.policy(UID, 1, 1)
    index, _ = read_publication(folder / "index.msgpack")
    other = AutoModelForCausalLM.from_pretrained(folder)
    tokens = torch.frombuffer(bytearray(index.probe_tokens), dtype=torch.int32).long()
    logits = other(tokens.unsqueeze(0)).logits[0].detach()
    expected = torch.log_softmax(logits[:-1], -1).gather(-1, tokens[1:, None])[:, 0]
    assert np.allclose(unpack_floats(index.probe_logprobs), expected.numpy(), atol=1e-4)
    assert index.policy == outcome.policy


async def test_a_batch_for_another_policy_is_refused(rank: Rank, blobs: FakeBlobs) -> None:
    other = PolicyRef(n=0, attempt=1, digest="other")
    outcome = await rank.obey(await a_batch(blobs, other))
    assert isinstance(outcome, Refusal)
    assert outcome.code == "policy"


async def test_a_rollout_of_another_policy_is_refused(rank: Rank, blobs: FakeBlobs) -> None:
    stale = PolicyRef(n=0, attempt=1, digest="stale")
    command = await a_batch(blobs, policy_of(rank), drawn_from=stale)
    outcome = await rank.obey(command)
    assert isinstance(outcome, Refusal)
    assert outcome.code == "invalid"
    assert "stale" in outcome.detail


async def test_a_row_whose_mask_differs_from_the_manifest_is_refused(
    rank: Rank, blobs: FakeBlobs
) -> None:
    command = await a_batch(blobs, policy_of(rank))
    manifest = decode(await blobs.fetch(command.manifest), BatchManifest)
    first = msgspec.structs.replace(manifest.rows[0], n_tokens=manifest.rows[0].n_tokens + 1)
    wrong = msgspec.structs.replace(
        manifest, rows=(first, *manifest.rows[1:]), tokens=manifest.tokens + 1
    )
    outcome = await rank.obey(await learn_of(blobs, wrong))
    assert isinstance(outcome, Refusal)
    assert "mask" in outcome.detail


async def test_a_missing_rollout_is_refused_and_nothing_moves(rank: Rank, blobs: FakeBlobs) -> None:
    command = await a_batch(blobs, policy_of(rank))
    gone = next(p for p in blobs.objects if "/rollouts/" in p)
    kept = blobs.objects.pop(gone)
    assert isinstance(await rank.obey(command), Refusal)
    assert policy_of(rank).n == 0
    blobs.objects[gone] = kept
    assert isinstance(await rank.obey(command), Learned)


async def test_an_update_whose_publication_failed_is_published_and_not_run_again(
    rank: Rank, blobs: FakeBlobs, gang: Gang, model: Path, tmp_path: Path
) -> None:
    command = await a_batch(blobs, policy_of(rank))
    blobs.outcomes = iter(["fail"])
    first = await rank.obey(command)
    assert isinstance(first, Refusal)
    assert first.code == "temporary"
    second = await rank.obey(command)
    other = a_rank(gang, job_spec(model), blobs, tmp_path, attempt=2)
    await other.start(None)
    assert isinstance(second, Learned)
    assert second.policy == (await learned(other, blobs)).policy


async def test_an_update_that_storage_refuses_for_too_long_is_refused_with_the_reason(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    rank = a_rank(gang, job_spec(model), blobs, tmp_path, patience=0.0)
    await rank.start(None)
    command = await a_batch(blobs, policy_of(rank))
    blobs.outcomes = iter(["fail"])
    refused = await rank.obey(command)
    assert isinstance(refused, Refusal)
    assert refused.code == "storage"
    assert "blob store failed" in refused.detail
    assert isinstance(await rank.obey(command), Learned)


async def test_a_failed_save_leaves_the_training_unharmed(rank: Rank, blobs: FakeBlobs) -> None:
    await learned(rank, blobs)
    blobs.outcomes = iter(["fail"])
    failed = await rank.obey(Save(Fence(1, 1), 1))
    assert isinstance(failed, Refusal)
    assert failed.code == "temporary"
    assert isinstance(await rank.obey(Save(Fence(1, 1), 1)), Saved)
    await learned(rank, blobs, step=1)


async def test_a_shard_that_does_not_read_back_is_no_checkpoint(
    rank: Rank, blobs: FakeBlobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = blobs.put_file

    async def damaged(path: str, source: Path) -> Ref:
        ref = await put(path, source)
        blobs.objects[path] = bytes(len(blobs.objects[path]))
        return ref

    with monkeypatch.context() as patch:
        patch.setattr(blobs, "put_file", damaged)
        failed = await rank.obey(Save(Fence(1, 1), 0))
    assert isinstance(failed, Refusal)
    assert failed.code == "temporary"
    assert "does not read back" in failed.detail
    await saved(rank, 0)


async def test_a_full_disk_is_named_and_the_next_save_works(
    rank: Rank, blobs: FakeBlobs, tmp_path: Path
) -> None:
    await learned(rank, blobs)
    rank._staging = tmp_path / "full"
    rank._staging.touch()  # what is no folder takes no file, whoever runs the test
    failed = await rank.obey(Save(Fence(1, 1), 1))
    assert isinstance(failed, Refusal)
    assert failed.code == "temporary"
    assert "cannot be written" in failed.detail
    rank._staging = tmp_path
    assert (await saved(rank, 1)).policy == policy_of(rank)


async def test_a_disk_that_fills_up_while_writing_is_no_harm(rank: Rank, blobs: FakeBlobs) -> None:
    await learned(rank, blobs)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        failed = await rank.obey(Save(Fence(1, 1), 1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert isinstance(failed, Refusal)
    assert failed.code == "temporary"
    assert "File too large" in failed.detail
    await saved(rank, 1)
    await learned(rank, blobs, step=1)


async def test_a_restored_learner_goes_on_bit_for_bit(
    rank: Rank, gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    await learned(rank, blobs)
    manifest = await commit(blobs, await saved(rank, 1))
    expected = await learned(rank, blobs, step=1)
    other = a_rank(gang, job_spec(model), blobs, tmp_path, attempt=2)
    await other.start(manifest)
    assert policy_of(other).n == 1
    assert policy_of(other).attempt == 2
    assert (await learned(other, blobs, step=1)).policy == expected.policy


@pytest.mark.parametrize(
    "algorithm",
    [
        {"type": "rloo", "kl_coefficient": 0.1, "kl": {"target": 1e-9}},
        {"type": "ppo", "critic": {"learning_rate": 1e-2, "warmup_steps": 1}},
    ],
)
async def test_a_restored_learner_has_the_state_of_its_algorithm(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path, algorithm: dict[str, Any]
) -> None:
    spec = job_spec(model, algorithm=algorithm)
    first = a_rank(gang, spec, blobs, tmp_path)
    await first.start(None)
    await learned(first, blobs)
    manifest = await commit(blobs, await saved(first, 1))
    expected = await learned(first, blobs, step=1)
    other = a_rank(gang, spec, blobs, tmp_path, attempt=2)
    await other.start(manifest)
    assert (await learned(other, blobs, step=1)).policy == expected.policy
    assert other.progress.course == first.progress.course != Course()


async def test_a_checkpoint_before_the_first_update_restores_too(
    rank: Rank, gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    manifest = await commit(blobs, await saved(rank, 0))
    expected = await learned(rank, blobs)
    other = a_rank(gang, job_spec(model), blobs, tmp_path, attempt=2)
    await other.start(manifest)
    assert (await learned(other, blobs)).policy == expected.policy


async def test_a_restored_learner_remembers_its_last_answer(
    rank: Rank, gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    outcome = await learned(rank, blobs)
    manifest = await commit(blobs, await saved(rank, 1))
    other = a_rank(gang, job_spec(model), blobs, tmp_path, attempt=2)
    await other.start(manifest)
    assert other.progress.last is not None
    assert other.progress.last.token == outcome.token
    assert other.progress.last.index == other.progress.index


async def test_a_damaged_shard_is_never_loaded(
    rank: Rank, gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    manifest = await commit(blobs, await saved(rank, 0))
    shard = next(p for p in blobs.objects if p.endswith(".distcp"))
    data = bytearray(blobs.objects[shard])
    data[len(data) // 2] ^= 1
    blobs.objects[shard] = bytes(data)
    with pytest.raises(Corrupt, match="cannot be restored"):
        await a_rank(gang, job_spec(model), blobs, tmp_path, attempt=2).start(manifest)


async def test_supervised_steps_lower_the_loss(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    learner = a_rank(gang, job_spec(model, sft=True), blobs, tmp_path)
    await learner.start(None)
    dataset = await a_dataset(blobs)
    losses = []
    for step in range(6):
        outcome = await learner.obey(
            await an_sft_step(blobs, dataset, policy_of(learner), step=step)
        )
        assert isinstance(outcome, Learned), outcome
        losses.append(next(s.value for s in outcome.stats if s.name == "loss"))
    assert losses[-1] < losses[0] - 0.5


async def test_the_index_lists_every_file_of_the_export(rank: Rank, blobs: FakeBlobs) -> None:
    assert rank.progress.index is not None
    index = decode(await blobs.fetch(rank.progress.index), PolicyIndex)
    folder = paths.policy(UID, 1, 0)
    assert {f"{folder}{f.path}" for f in index.files} | {f"{folder}index.msgpack"} == set(
        await blobs.list(folder)
    )
