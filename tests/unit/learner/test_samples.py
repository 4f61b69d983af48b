"""From rollouts to micro-batches: what is checked, selected, weighted, padded."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.errors import Refused
from ebbtide.wire import (
    BatchManifest,
    Dispatch,
    PolicyRef,
    PromptRow,
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
from services.learner.core.samples import (
    Sample,
    Weighting,
    check_manifest,
    my_rows,
    pad,
    sample_of,
    supervised_sample,
)

POLICY = PolicyRef(3, 1, "digest")
KEY = SampleKey("job", 0, 0, 0)
ROW = Row(KEY, Ref("r", "d", 1), 2, 0.5, 0, 0)
ROLLOUT = Rollout(
    key=KEY,
    dispatch=Dispatch(1, 1, 0),
    prompt_id="p",
    prompt_tokens=pack_ints([5, 6]),
    tokens=pack_ints([7, 8, 9]),
    logprobs=pack_floats([-1.0, -2.0, -3.0]),
    action_mask=pack_mask([1, 0, 1]),
    spans=(Span(0, 1, POLICY), Span(2, 3, POLICY)),
    finish="stop",
    timings=Timings(0, 0, 0),
    actor="a",
)
WEIGHTING = Weighting("token-mean", tokens=8, sequences=2, limit=10)
MANIFEST = BatchManifest("job", 1, 0, POLICY, (ROW,), 2, 1, 2, 1)


def test_only_tokens_that_the_policy_chose_are_selected() -> None:
    sample = sample_of(ROW, ROLLOUT, POLICY, WEIGHTING)
    assert sample.tokens.tolist() == [5, 6, 7, 8, 9]
    assert sample.chosen.tolist() == [2, 4]
    assert sample.logprobs.tolist() == [-1.0, -3.0]
    assert sample.weight == 1 / 8


def test_no_number_at_a_tools_token_reaches_the_loss() -> None:
    odd = msgspec.structs.replace(ROLLOUT, logprobs=pack_floats([-1.0, float("nan"), -3.0]))
    batch = pad([sample_of(ROW, odd, POLICY, WEIGHTING)])
    assert batch.rollout.tolist() == [-1.0, -3.0]
    assert batch.targets.tolist() == [7, 9]


def test_an_answer_that_holds_the_padding_token_loses_none_of_its_tokens() -> None:
    zeros = msgspec.structs.replace(
        ROLLOUT,
        tokens=pack_ints([0, 0, 0]),
        action_mask=pack_mask([1, 1, 1]),
        spans=(Span(0, 3, POLICY),),
    )
    whole = sample_of(msgspec.structs.replace(ROW, n_tokens=3), zeros, POLICY, WEIGHTING)
    batch = pad([whole, *drawn([(5, 4)])])
    assert batch.targets[:3].tolist() == [0, 0, 0]
    assert batch.where[:3].tolist() == [1, 2, 3]


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("key", SampleKey("job", 0, 0, 1), "holds"),
        ("prompt_tokens", b"", "sizes"),
        ("logprobs", pack_floats([-1.0]), "sizes"),
        ("action_mask", pack_mask([1, 1, 1]), "mask has 3"),
        ("action_mask", pack_mask([0, 1, 1]), "disagrees with the spans"),
        ("logprobs", pack_floats([float("nan"), -2.0, -3.0]), "no log-probability"),
        ("spans", (Span(0, 3, PolicyRef(2, 1, "old")),), "sampled from"),
    ],
)
def test_a_rollout_that_is_not_its_rows_is_refused(field: str, value: object, words: str) -> None:
    wrong = msgspec.structs.replace(ROLLOUT, **{field: value})
    with pytest.raises(Refused, match=words):
        sample_of(ROW, wrong, POLICY, WEIGHTING)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"attempt": 2}, "attempt"),
        ({"ranks": 3}, "ranks"),
        ({"last": False}, "segments"),
        ({"segment": 1}, "segments"),
        ({"microbatches": 0}, "outside"),
        ({"tokens": 3}, "tokens"),
        ({"sequences": 2}, "sequences"),
    ],
)
def test_a_manifest_that_contradicts_itself_or_the_gang_is_refused(
    change: dict[str, object], words: str
) -> None:
    check_manifest(MANIFEST, attempt=1, ranks=2)
    with pytest.raises(Refused, match=words):
        check_manifest(msgspec.structs.replace(MANIFEST, **change), attempt=1, ranks=2)


def test_rows_of_other_ranks_and_of_none_are_not_mine() -> None:
    rows = tuple(msgspec.structs.replace(ROW, rank=rank) for rank in (0, 1, -1))
    assert my_rows(msgspec.structs.replace(MANIFEST, rows=rows), 1) == [rows[1]]


@pytest.mark.parametrize(
    ("aggregation", "weight"),
    [("token-mean", 1 / 8), ("sequence-mean", 1 / 8), ("dr-grpo", 1 / 20)],
)
def test_a_tokens_weight_follows_the_aggregation(aggregation: str, weight: float) -> None:
    assert Weighting(aggregation, tokens=8, sequences=2, limit=10).of(4) == weight


LENGTHS = st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=9)


def drawn(sizes: list[tuple[int, int]]) -> list[Sample]:
    rng = np.random.default_rng(0)
    return [
        Sample(
            tokens=rng.integers(1, 99, p + n),
            chosen=np.arange(p, p + n),
            logprobs=np.full(n, -1.0, np.float32),
            advantage=float(i),
            weight=0.1,
        )
        for i, (p, n) in enumerate(sizes)
    ]


@given(LENGTHS, st.sampled_from([1, 8]))
def test_padding_keeps_every_token_and_points_before_each_target(
    sizes: list[tuple[int, int]], multiple: int
) -> None:
    samples = drawn(sizes)
    batch = pad(samples, multiple=multiple)
    rows, columns = np.divmod(batch.where, batch.tokens.shape[1])
    assert np.array_equal(batch.tokens[rows, columns + 1], batch.targets)
    assert len(batch.targets) == sum(n for _, n in sizes)
    assert batch.tokens.sum() == sum(s.tokens.sum() for s in samples)
    assert np.array_equal(batch.advantages, rows.astype(np.float32))
    assert batch.tokens.shape[1] % multiple == 0


def test_without_rows_a_dummy_of_no_weight_takes_the_place() -> None:
    batch = pad([])
    assert not batch.real
    assert batch.weights.tolist() == [0.0]


def test_supervised_loss_is_on_the_completion_alone() -> None:
    row = PromptRow("p", pack_ints([1, 2]), "", b"", "t", "s", completion=pack_ints([3, 4]))
    assert supervised_sample(row, 0.5).chosen.tolist() == [2, 3]
    with pytest.raises(Refused, match="completion"):
        supervised_sample(msgspec.structs.replace(row, completion=b""), 0.5)
