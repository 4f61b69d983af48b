"""Whole tensors of many shards are what one rank would have, however they are packed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from services.learner.engine.gang import Gang
from services.learner.engine.gathering import whole, whole_state
from services.learner.engine.policy import load_policy
from tests.unit.learner.gangs import run_ranks, save_model

Arrays = dict[str, np.ndarray]


def packed(gang: Gang, model: str, buckets: list[int]) -> list[Arrays]:
    module = load_policy(Path(model), gang, mixed_precision=False).module
    found = [whole_state(module, gang, bucket=bucket) for bucket in buckets]
    return [{name: t.numpy() for name, t in state.items()} for state in found]


def test_three_ranks_give_the_whole_model_in_one_message_and_in_many(tmp_path: Path) -> None:
    model = save_model(tmp_path / "model", seed=3)  # 50 and 32 rows: no three equal shares
    ranks: list[Any] = run_ranks(3, packed, tmp_path, str(model), [1 << 20, 2000, 1])
    expected = load_file(model / "model.safetensors")
    for state in ranks[0]:
        assert {"lm_head.weight", *expected} == set(state)
        assert all(np.array_equal(state[name], expected[name].numpy()) for name in expected)
    assert ranks[1] == ranks[2] == [{}, {}, {}]


@pytest.mark.parametrize("tied", [True, False])
def test_a_tied_name_has_what_it_is_tied_to(
    gang: Gang,
    tmp_path: Path,
    tied: bool,
) -> None:
    module = load_policy(save_model(tmp_path, tied=tied), gang, mixed_precision=False).module
    state = whole_state(module, gang)
    same = torch.equal(state["lm_head.weight"], state["model.embed_tokens.weight"])
    assert same == tied


def test_what_is_not_sharded_is_copied(gang: Gang) -> None:
    buffer = torch.zeros(3)
    found = whole({"a": buffer}, gang)
    buffer += 1
    assert found["a"].tolist() == [0, 0, 0]
