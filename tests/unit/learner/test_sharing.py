"""Shared rows: the same numbers as alone, for fewer tokens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.rl.packing import WIDEST
from services.learner.core.samples import MicroBatch, Sample, pad
from services.learner.core.sharing import PADDING, ROW_EACH, Rows, rows_of, tree
from services.learner.engine.gang import Gang
from services.learner.engine.trial import shared_width
from services.learner.engine.updates import on_device
from tests.unit.learner.gangs import VOCABULARY, Parts, close

WIDE = 1 << 20
"""A hidden size at which attention costs nothing beside tokens."""
SHARED = Rows(hidden=WIDE, share=True)
FILLED = Rows(fill=True)
BOTH = Rows(hidden=WIDE, share=True, fill=True)


def group(prompt: int, answers: list[int], *, seed: int = 0) -> list[Sample]:
    rng = np.random.default_rng(seed)
    trunk = rng.integers(0, VOCABULARY, prompt)
    total = sum(answers)
    return [
        Sample(
            tokens=np.concatenate([trunk, rng.integers(0, VOCABULARY, n)]),
            chosen=np.arange(prompt, prompt + n),
            logprobs=np.full(n, -3.0, np.float32),
            advantage=1.5 if i % 2 else -0.7,
            weight=1.0 / total,
            prompt=prompt,
        )
        for i, n in enumerate(answers)
    ]


GROUPS = st.lists(
    st.tuples(st.integers(1, 9), st.lists(st.integers(1, 9), min_size=1, max_size=5)),
    min_size=1,
    max_size=4,
)


@given(GROUPS, st.sampled_from([1, 8, WIDE]), st.booleans(), st.booleans())
def test_every_target_keeps_its_text_and_position(
    sizes: list[tuple[int, list[int]]], hidden: int, share: bool, fill: bool
) -> None:
    samples = [s for i, (p, answers) in enumerate(sizes) for s in group(p, answers, seed=i)]
    batch, apart = Rows(hidden=hidden, share=share, fill=fill).of(samples), pad(samples)
    for name in ("targets", "rollout", "advantages", "weights", "counts"):
        assert np.array_equal(getattr(batch, name), getattr(apart, name)), name
    assert [seen(batch, int(w)) for w in batch.where] == [seen(apart, int(w)) for w in apart.where]


def seen(batch: MicroBatch, where: int) -> list[tuple[int, int]]:
    """(position, token) of all that the state at `where` attends to."""
    row, column = divmod(where, batch.tokens.shape[1])
    columns = np.arange(column + 1)
    if batch.branch is None or batch.trunk is None or batch.positions is None:
        return [(int(c), int(batch.tokens[row, c])) for c in columns]
    branch, trunk = batch.branch[row], batch.trunk[row]
    assert branch[column] != PADDING
    mine = [c for c in columns if branch[c] in (trunk[column], branch[column])]
    return [(int(batch.positions[row, c]), int(batch.tokens[row, c])) for c in mine]


def test_siblings_share_while_that_is_cheaper() -> None:
    samples = group(40, [5, 5, 300, 5])
    assert [len(row) for row in rows_of(samples, hidden=WIDE)] == [4]
    assert [len(row) for row in rows_of(samples, hidden=8)] == [2, 2]
    assert tree(samples).tokens.size == 40 + 315


def test_other_prompts_and_unknown_ones_are_not_shared() -> None:
    one, other = group(6, [3, 4]), group(6, [3, 4], seed=1)
    unknown = [replace(s, prompt=0) for s in one]
    assert len(rows_of([one[0], other[0]], hidden=WIDE)) == 2
    assert len(rows_of(unknown, hidden=WIDE)) == 2
    assert SHARED.of(unknown).branch is None


@pytest.mark.parametrize("kl", [0.0, 0.1])
@pytest.mark.parametrize("rows", [SHARED, FILLED, BOTH], ids=["shared", "filled", "both"])
def test_rows_of_several_give_the_gradient_of_rows_apart(
    gang: Gang, model: Path, kl: float, rows: Rows
) -> None:
    samples = [*group(9, [3, 1, 7, 4]), *group(2, [2, 8], seed=1)]
    assert rows.of(samples).tokens.size < pad(samples).tokens.size
    old = torch.full((len(pad(samples).targets),), -3.5)
    apart, shared = (Parts(gang, model, algorithm={"kl_coefficient": kl}) for _ in range(2))
    losses = [
        apart.learner.gradient([pad(samples)], [old]),
        shared.learner.gradient([rows.of(samples)], [old]),
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    assert close(apart.gradients(), shared.gradients())


def test_a_model_that_reads_shared_rows_is_found_out(gang: Gang, model: Path) -> None:
    policy = Parts(gang, model).policy
    config: Any = policy.module.config
    assert shared_width(policy, gang.device, coarse=False) == config.hidden_size
    config.layer_types = ["sliding_attention"]
    assert shared_width(policy, gang.device, coarse=False) == 0


def test_a_model_that_reads_them_wrongly_is_found_out(
    gang: Gang, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Parts(gang, model).policy
    forward = policy.module.forward

    def blind(
        *, input_ids: Any, position_ids: Any = None, attention_mask: Any = None, **_: Any
    ) -> Any:
        return forward(input_ids=input_ids, use_cache=False)

    monkeypatch.setattr(policy.module, "forward", blind)
    assert shared_width(policy, gang.device, coarse=False) == 0


def test_rows_are_filled_with_what_fits() -> None:
    samples = [s for i, n in enumerate([20, 9, 8, 2]) for s in group(1, [n - 1], seed=i)]
    batch = FILLED.of(samples)
    assert batch.tokens.shape == (2, 20)
    assert batch.positions is not None
    assert batch.positions[1].tolist() == [*range(9), *range(8), *range(2), 0]


@given(GROUPS, st.sampled_from([1, 8, WIDE]), st.booleans())
def test_sharing_never_computes_more_positions_than_without(
    sizes: list[tuple[int, list[int]]], hidden: int, fill: bool
) -> None:
    samples = [s for i, (p, answers) in enumerate(sizes) for s in group(p, answers, seed=i)]
    shared, without = (Rows(hidden=hidden, share=share, fill=fill) for share in (True, False))
    assert shared.of(samples).computed <= without.of(samples).computed


def test_a_row_that_grew_by_a_sibling_makes_no_padding_of_the_others() -> None:
    samples = [*group(4, [50, 50]), *(s for i in range(9) for s in group(4, [50], seed=i + 1))]
    assert SHARED.of(samples).branch is None
    saving = [*group(40, [10, 10, 10]), *group(40, [10, 10, 10], seed=1)]
    assert SHARED.of(saving).computed < pad(saving).computed / 2


def test_one_row_too_wide_for_a_mask_leaves_all_rows_apart() -> None:
    samples = [*group(40, [5, 5]), *group(1, [WIDEST], seed=1)]
    assert BOTH.of(samples).branch is None


def test_samples_that_fill_their_rows_are_padded_plainly() -> None:
    samples = [s for i in range(3) for s in group(1, [7], seed=i)]
    assert FILLED.of(samples).branch is None
    assert ROW_EACH.of(group(4, [2, 3])).branch is None


def test_padding_of_shared_rows_is_finite(gang: Gang, model: Path) -> None:
    policy = Parts(gang, model).policy
    batch = on_device(BOTH.of([*group(9, [3, 4]), *group(2, [1], seed=1)]), gang.device)
    assert batch.shared is not None
    policy._where = torch.arange(batch.tokens.numel())
    out = policy.module(
        input_ids=batch.tokens,
        attention_mask=batch.shared.mask,
        position_ids=batch.shared.positions,
    )
    assert torch.isfinite(out.logits).all()
