"""A publication reads back as written, or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ebbtide import wire
from ebbtide.engines.policies import INDEX_NAME, located, policy_digest, read_index
from ebbtide.engines.publication import read_publication, tied_names, write_publication
from ebbtide.errors import Corrupt
from ebbtide.wire import PolicyIndex, PolicyRef, Ref


def _publish(folder: Path, *, scale: float = 1.0, shard: int = 1 << 30) -> PolicyIndex:
    weights = torch.arange(24, dtype=torch.float32).reshape(4, 6) * scale
    tensors = {"b.weight": weights, "a.bias": torch.ones(3, dtype=torch.bfloat16)}
    tensors["head.weight"] = weights
    aliases = {"head.weight": "b.weight"}
    return write_publication(
        folder,
        tensors,
        aliases,
        policy_n=3,
        attempt=1,
        probe_tokens=b"",
        probe_logprobs=b"",
        max_shard_bytes=shard,
    )


def test_a_publication_reads_back_as_written(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    written = _publish(tmp_path)
    index, tensors = read_publication(tmp_path / INDEX_NAME)
    assert index == written
    assert sorted(tensors) == ["a.bias", "b.weight"]
    assert tensors["b.weight"][3, 5] == 23
    assert [f.path for f in index.files] == ["config.json", "model.safetensors"]


def test_sharding_does_not_change_the_policy(tmp_path: Path) -> None:
    whole, split = _publish(tmp_path / "a"), _publish(tmp_path / "b", shard=64)
    assert len({t.file for t in split.tensors}) == 2
    assert split.policy == whole.policy
    assert (tmp_path / "b" / "model.safetensors.index.json").exists()
    read_publication(tmp_path / "b" / INDEX_NAME)


def test_other_weights_are_another_policy(tmp_path: Path) -> None:
    assert _publish(tmp_path / "a").policy != _publish(tmp_path / "b", scale=2.0).policy


def test_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    _publish(tmp_path)
    data = bytearray((tmp_path / "model.safetensors").read_bytes())
    data[-1] ^= 1
    (tmp_path / "model.safetensors").write_bytes(data)
    with pytest.raises(Corrupt, match="differ"):
        read_publication(tmp_path / INDEX_NAME)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    _publish(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(Corrupt):
        read_publication(tmp_path / INDEX_NAME)


def test_an_index_of_another_policy_is_refused(tmp_path: Path) -> None:
    _publish(tmp_path)
    with pytest.raises(Corrupt, match="asked for"):
        read_index(tmp_path / INDEX_NAME, PolicyRef(3, 1, "0" * 64))


def test_an_index_that_contradicts_its_digest_is_refused(tmp_path: Path) -> None:
    index = _publish(tmp_path)
    fewer = PolicyIndex(index.policy, index.tensors[1:], index.aliases, index.files, b"", b"")
    (tmp_path / INDEX_NAME).write_bytes(wire.encode(fewer))
    with pytest.raises(Corrupt, match="contradicts"):
        read_index(tmp_path / INDEX_NAME)


def test_the_policy_digest_ignores_order(tmp_path: Path) -> None:
    tensors = _publish(tmp_path).tensors
    assert policy_digest(reversed(tensors)) == policy_digest(tensors)


def test_tied_parameters_are_found() -> None:
    model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)})
    model["b"].weight = model["a"].weight
    assert tied_names(model) == {"b.weight": "a.weight"}


def test_files_are_located_beside_the_index() -> None:
    index = Ref("jobs/u/policies/7/index.msgpack", "d", 1)
    assert (
        located(index, Ref("model.safetensors", "e", 2)).path
        == "jobs/u/policies/7/model.safetensors"
    )
