"""A model's files, described without torch as a learner would describe them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from ebbtide.engines.model_files import TABLE, check_weights, described, tied
from ebbtide.engines.publication import write_publication
from ebbtide.errors import Refused

DTYPES = [torch.float32, torch.bfloat16]


def tensors(dtype: torch.dtype) -> dict[str, torch.Tensor]:
    made = torch.Generator().manual_seed(0)
    return {
        "model.embed_tokens.weight": torch.randn(5, 4, generator=made).to(dtype),
        "model.norm.weight": torch.randn(4, generator=made).to(dtype),
        "model.scale": torch.tensor(float("nan"), dtype=dtype),
        "model.none": torch.empty(0, 3, dtype=dtype),
    }


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_names_shapes_and_digests_are_those_of_a_publication(
    dtype: torch.dtype, tmp_path: Path
) -> None:
    save_file(tensors(dtype), tmp_path / "model.safetensors", metadata={"format": "pt"})
    index = write_publication(
        tmp_path / "published",
        tensors(dtype),
        {},
        policy_n=0,
        attempt=1,
        probe_tokens=b"",
        probe_logprobs=b"",
    )
    assert described(tmp_path, str(dtype).removeprefix("torch.")) == index.tensors


def test_shards_are_found_by_their_table_and_nothing_else_is_read(tmp_path: Path) -> None:
    whole = tensors(torch.float32)
    files = {name: f"part-{number}.safetensors" for number, name in enumerate(whole)}
    for name, file in files.items():
        save_file({name: whole[name]}, tmp_path / file)
    (tmp_path / "consolidated.safetensors").write_bytes(b"other")
    (tmp_path / TABLE).write_text(json.dumps({"weight_map": files}))
    assert {one.name: one.file for one in described(tmp_path, "float32")} == files


def test_another_data_type_is_refused_with_the_one_to_set(tmp_path: Path) -> None:
    save_file(tensors(torch.bfloat16), tmp_path / "model.safetensors")
    with pytest.raises(Refused, match=r"set model\.dtype: bfloat16") as refused:
        check_weights(tmp_path, "float32")
    assert refused.value.field == "/model/uri"


DEEP = b'{"a":' * 100_000


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"\x00" * 7,
        b"\xff" * 64,
        (9).to_bytes(8, "little") + b"[1, 2, 3]",
        len(DEEP).to_bytes(8, "little") + DEEP,
    ],
    ids=["empty", "short", "length", "list", "deep"],
)
def test_what_is_no_safetensors_file_is_refused(damage: bytes, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(damage)
    with pytest.raises(Refused, match="is no safetensors file"):
        described(tmp_path, "float32")


def test_a_table_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    (tmp_path / TABLE).write_bytes(DEEP)
    with pytest.raises(Refused, match="is no table of weights"):
        described(tmp_path, "float32")


def test_a_file_that_was_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    save_file(tensors(torch.float32), path)
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(Refused, match="is no safetensors file"):
        described(tmp_path, "float32")


def test_a_folder_without_safetensors_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="save the model as safetensors"):
        described(tmp_path, "float32")


def test_a_head_that_the_files_leave_out_is_the_embedding(tmp_path: Path) -> None:
    save_file(tensors(torch.float32), tmp_path / "model.safetensors")
    found = {one.name: one for one in described(tmp_path, "float32")}
    assert tied(found) == (("lm_head.weight", "model.embed_tokens.weight"),)
    own = found | {"lm_head.weight": found["model.norm.weight"]}
    assert tied(own) == ()
