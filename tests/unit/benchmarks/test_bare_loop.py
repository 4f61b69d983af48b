"""The bare loop does the recorded work: those tokens, those rows, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from benchmarks.bare_loop import BareLoop, Work, micro_batches
from ebbtide.spec import RLHFJobSpec
from ebbtide.wire import (
    BatchManifest,
    Dispatch,
    PolicyRef,
    Ref,
    Rollout,
    Row,
    SampleKey,
    Span,
    Timings,
    pack_floats,
    pack_ints,
    pack_mask,
)
from tests.e2e.jobs import Material
from tests.e2e.tiny import write_model, write_prompts

BASE = PolicyRef(0, 1, "base")
NOWHERE = Ref("r", "d", 1)


@pytest.fixture(scope="module")
def spec(tmp_path_factory: pytest.TempPathFactory) -> RLHFJobSpec:
    folder: Path = tmp_path_factory.mktemp("bare")
    made = Material(write_model(folder), write_prompts(folder / "prompts.jsonl"))
    return RLHFJobSpec.model_validate(made.spec(), strict=False)


def rollout(index: int, tokens: list[int]) -> Rollout:
    n = len(tokens)
    return Rollout(
        key=SampleKey("uid", 0, 0, index),
        dispatch=Dispatch(1, 1, index),
        prompt_id="p",
        prompt_tokens=pack_ints([4, 5, 6]),
        tokens=pack_ints(tokens),
        logprobs=pack_floats([-1.0] * n),
        action_mask=pack_mask([1] * n),
        spans=(Span(0, n, BASE),),
        finish="stop",
        timings=Timings(0, 0, 0),
        actor="a",
    )


def work(*, rank: int) -> Work:
    rollouts = [rollout(0, [7, 8, 9]), rollout(1, [7, 7, 8, 9, 1])]
    rows = tuple(Row(r.key, NOWHERE, r.n_tokens, 1.0 - i, rank, 0) for i, r in enumerate(rollouts))
    return Work(0, rollouts, BatchManifest("uid", 1, 0, BASE, rows, 8, 2, 1, 1))


def weights(loop: BareLoop) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in loop._model.parameters()])


def test_a_step_updates_the_weights(spec: RLHFJobSpec) -> None:
    loop = BareLoop(spec, slots=2)
    before = weights(loop)
    loop.step(work(rank=0))
    assert not torch.equal(before, weights(loop))


def test_rows_that_are_not_computed_change_nothing(spec: RLHFJobSpec) -> None:
    loop = BareLoop(spec, slots=2)
    before = weights(loop)
    loop.step(work(rank=-1))
    assert torch.equal(before, weights(loop))


def test_exactly_the_recorded_tokens_are_decoded(spec: RLHFJobSpec) -> None:
    loop = BareLoop(spec, slots=1)
    assert loop._generate(work(rank=0).rollouts) == 8


def test_every_row_is_in_one_micro_batch() -> None:
    batch = work(rank=0).batch
    assert [len(rows) for rows in micro_batches(batch)] == [2]
