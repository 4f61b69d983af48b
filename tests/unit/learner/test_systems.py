"""Host memory and compilation: the same numbers, refused where they cannot work."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch._dynamo.utils import counters

from ebbtide.errors import Refused
from ebbtide.spec import LearnerSpec
from services.learner.engine.gang import Gang
from services.learner.engine.policy import load_policy
from services.learner.engine.trainer import build_trainer
from services.learner.engine.trial import check_compiled
from tests.unit.learner.builders import job_spec
from tests.unit.learner.gangs import Parts, close, lay, samples

pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")
"""Torch's tracer reads it of every input that it is given."""
SIZES = {"mini_batches": 2, "updates_per_batch": 2}


def learnt(gang: Gang, model: Path, **ways: Any) -> Parts:
    parts = Parts(gang, model, algorithm={"kl_coefficient": 0.05}, training=SIZES, **ways)
    parts.learner.learn(lay(samples(12), limit=64))
    return parts


@pytest.mark.parametrize("layered", [False, True])
def test_offloaded_parameters_learn_the_same_bits(gang: Gang, model: Path, layered: bool) -> None:
    here, there = (learnt(gang, model, layered=layered, offload=o) for o in (False, True))
    moved = there.parameters()
    assert all(np.array_equal(p, moved[name]) for name, p in here.parameters().items())


def test_a_rank_without_a_gpu_has_nothing_to_offload_from(gang: Gang, model: Path) -> None:
    asked = LearnerSpec(ranks=1, device="auto", cpu_offload=True)
    spec = job_spec(model).model_copy(update={"learner": asked})
    with pytest.raises(Refused, match="no GPU") as caught:
        build_trainer(spec, gang, model)
    assert caught.value.field == "/learner/cpuOffload"


def test_compiled_layers_learn_the_same_also_where_they_are_computed_again(
    gang: Gang, model: Path
) -> None:
    plain = Parts(gang, model, layered=True, training={"updates_per_batch": 2})
    ways: dict[str, Any] = {"layered": True, "checkpointing": True, "backend": "aot_eager"}
    compiled = Parts(gang, model, training={"updates_per_batch": 2}, **ways)
    counters.clear()
    torch.compiler.reset()
    for parts in (plain, compiled):
        parts.learner.learn(lay(samples(12), limit=10_000))
    assert counters["stats"]["unique_graphs"] > 0, "nothing was compiled"
    assert close(plain.parameters(), compiled.parameters(), limit=1e-4)


def test_a_job_that_asks_for_it_has_its_layers_compiled_and_tried(gang: Gang, model: Path) -> None:
    asked = LearnerSpec(ranks=1, device="cpu", compile=True)
    spec = job_spec(model).model_copy(update={"learner": asked})
    counters.clear()
    torch.compiler.reset()
    build_trainer(spec, gang, model, backend="aot_eager")
    assert counters["stats"]["unique_graphs"] > 0


def fails(_graph: Any, _inputs: Any) -> Callable[..., Any]:
    raise RuntimeError("no C++ compiler here")


def doubles(graph: Any, _inputs: Any) -> Callable[..., Any]:
    return lambda *values: tuple(2 * made for made in graph(*values))


@pytest.mark.parametrize(("backend", "words"), [(fails, "no C++ compiler"), (doubles, "differs")])
def test_a_model_that_cannot_be_compiled_rightly_is_refused(
    gang: Gang, model: Path, backend: Any, words: str
) -> None:
    torch.compiler.reset()
    policy = load_policy(model, gang, mixed_precision=False, backend=backend)
    with pytest.raises(Refused) as caught:
        check_compiled(policy, gang.device, coarse=False)
    assert caught.value.field == "/learner/compile"
    assert words in caught.value.detail
