"""Adapters: they alone learn and are published, and merged they are the policy that learned."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from ebbtide import paths
from ebbtide.engines.merging import export, merged
from ebbtide.engines.publication import read_publication
from ebbtide.errors import Corrupt, Refused
from ebbtide.spec import LoraSpec
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.wire import Learned, PolicyIndex, unpack_floats
from services.learner.app.rank import Rank
from services.learner.engine.gang import Gang
from services.learner.engine.policy import load_policy
from tests.unit.learner.builders import UID, a_batch, a_rank, commit, job_spec
from tests.unit.learner.gangs import (
    Parts,
    close,
    lay,
    parameters_of,
    run_ranks,
    samples,
    save_model,
)
from tests.unit.learner.test_rank import policy_of, saved

LORA: dict[str, Any] = {"rank": 3, "alpha": 12.0}


@pytest.fixture
def blobs(tmp_path: Path) -> FakeBlobs:
    return FakeBlobs(folder=tmp_path / "local")


def a_learner(gang: Gang, model: Path, blobs: FakeBlobs, folder: Path, attempt: int = 1) -> Rank:
    spec = job_spec(model, algorithm={"type": "grpo", "klCoefficient": 0.1}, lora=LORA)
    return a_rank(gang, spec, blobs, folder, attempt=attempt)


async def learned(rank: Rank, blobs: FakeBlobs) -> Learned:
    outcome = await rank.obey(await a_batch(blobs, policy_of(rank)))
    assert isinstance(outcome, Learned), outcome
    return outcome


async def publication(blobs: FakeBlobs, folder: Path, version: int) -> Path:
    """The local index of a publication, all of the job's files beside it."""
    for path in await blobs.list(paths.job(UID)):
        await blobs.local(await blobs.put(path, blobs.objects[path]))
    return folder / "local" / paths.policy(UID, 1, version) / "index.msgpack"


def probe_of(index: PolicyIndex, folder: Path) -> np.ndarray:
    """Log-probabilities of the probe by transformers' own model in `folder`."""
    tokens = torch.frombuffer(bytearray(index.probe_tokens), dtype=torch.int32).long()
    logits = AutoModelForCausalLM.from_pretrained(folder)(tokens.unsqueeze(0)).logits[0].detach()
    found: np.ndarray = (
        torch.log_softmax(logits[:-1], -1).gather(-1, tokens[1:, None])[:, 0].numpy()
    )
    return found


def test_at_first_the_adapted_model_is_the_model_itself(gang: Gang, model: Path) -> None:
    rows = lay(samples(4))
    plain, lora = Parts(gang, model), Parts(gang, model, training={"lora": LORA})
    old = [torch.full((len(batch.targets),), -3.9) for batch in rows]
    assert lora.learner.gradient(rows, old) == pytest.approx(plain.learner.gradient(rows, old))
    named = lora.gradients()
    assert named
    assert all(name.endswith(("lora_A", "lora_B")) for name in named)


def test_adapters_alone_learn(gang: Gang, model: Path) -> None:
    lora = Parts(gang, model, training={"lora": LORA})
    before = lora.parameters()
    lora.learner.learn(lay(samples(6)))
    moved = {n for n, found in lora.parameters().items() if not np.array_equal(found, before[n])}
    assert moved
    assert {name.rpartition(".")[2] for name in moved} == {"lora_B"}  # A's gradient is 0 at B = 0
    lora.learner.learn(lay(samples(6)))
    moved = {n for n, found in lora.parameters().items() if not np.array_equal(found, before[n])}
    assert {name.rpartition(".")[2] for name in moved} == {"lora_A", "lora_B"}


def adapter_gradients(gang: Gang, model: str) -> dict[str, np.ndarray]:
    torch.manual_seed(0)
    parts = Parts(gang, Path(model), training={"lora": LORA}, layered=True)
    parts.learner.learn(lay(samples(6), rank=gang.rank, ranks=gang.size))
    return parts.parameters()


def test_two_ranks_learn_the_adapters_of_one(gang: Gang, model: Path, tmp_path: Path) -> None:
    mine = adapter_gradients(gang, str(model))
    [_, theirs] = run_ranks(2, adapter_gradients, tmp_path, str(model))
    assert close(mine, theirs)


async def test_a_publication_has_adapters_alone_and_is_read_as_the_policy(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    rank = a_learner(gang, model, blobs, tmp_path)
    await rank.start(None)
    outcome = await learned(rank, blobs)
    path = await publication(blobs, tmp_path, 1)
    index, tensors = read_publication(path)
    assert index.policy == outcome.policy
    assert {t.file for t in index.tensors} == {"adapter_model.safetensors"}
    assert all(".lora_" in t.name for t in index.tensors)
    assert tensors.keys() == AutoModelForCausalLM.from_pretrained(model).state_dict().keys() - {
        "lm_head.weight"
    }


async def test_merged_for_good_it_scores_as_the_adapters_did(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    rank = a_learner(gang, model, blobs, tmp_path)
    await rank.start(None)
    await learned(rank, blobs)
    path = await publication(blobs, tmp_path, 1)
    export(path, tmp_path / "whole")
    index, _ = read_publication(path)
    probe = unpack_floats(index.probe_logprobs)
    assert np.allclose(probe, probe_of(index, tmp_path / "whole"), atol=1e-5)
    assert not np.allclose(probe, probe_of(index, model), atol=1e-3)


async def test_another_attempt_goes_on_with_the_same_adapters_over_the_same_base(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    rank = a_learner(gang, model, blobs, tmp_path)
    await rank.start(None)
    await learned(rank, blobs)
    parent = await commit(blobs, await saved(rank, 1))
    again = a_learner(gang, model, blobs, tmp_path, attempt=2)
    await again.start(parent)
    assert policy_of(again) == policy_of(rank)


async def test_weights_that_changed_since_the_job_began_are_refused_as_base(
    gang: Gang, model: Path, blobs: FakeBlobs, tmp_path: Path
) -> None:
    await a_learner(gang, model, blobs, tmp_path).start(None)
    other = a_learner(gang, save_model(tmp_path / "other", seed=9), blobs, tmp_path, attempt=2)
    with pytest.raises(Refused, match=r"the weights at model\.uri changed"):
        await other.start(None)


def test_the_reference_of_kl_is_the_policy_without_its_adapters(gang: Gang, model: Path) -> None:
    lora = load_policy(model, gang, mixed_precision=False, lora=LoraSpec(**LORA))
    plain = load_policy(model, gang, mixed_precision=False)
    assert lora.adapters is not None
    [batch] = lay(samples(3), limit=10_000)
    read = [torch.from_numpy(a) for a in (batch.tokens, batch.where, batch.targets)]
    with torch.no_grad():
        for name, parameter in lora.module.named_parameters():
            parameter.add_(0.1 if "lora_" in name else 0.0)
        wanted = plain.score(*read, temperature=1.0).logprobs
        with lora.adapters.off():
            assert torch.equal(lora.score(*read, temperature=1.0).logprobs, wanted)
        assert not torch.allclose(lora.score(*read, temperature=1.0).logprobs, wanted)


def test_a_layer_that_is_not_there_is_refused(gang: Gang, model: Path) -> None:
    with pytest.raises(Refused, match=r"no linear layer is called \['c_attn'\]"):
        load_policy(model, gang, mixed_precision=False, lora=LoraSpec(targets=("q_proj", "c_attn")))


def test_adapters_that_do_not_fit_their_base_are_corrupt(gang: Gang, model: Path) -> None:
    base = {
        k: torch.from_numpy(v) for k, v in parameters_of(Parts(gang, model).policy.module).items()
    }
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_{}.weight"
    pair = {name.format("A"): torch.ones(3, 32), name.format("B"): torch.ones(31, 3)}
    with pytest.raises(Corrupt, match="does not fit"):
        merged(base, pair, 1.0)
    with pytest.raises(Corrupt, match="does not fit"):
        merged(base, {name.format("A"): torch.ones(3, 32)}, 1.0)
