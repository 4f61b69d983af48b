"""A segment reads back exactly, or not at all."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.errors import Corrupt
from ebbtide.ledger import Segment, decode_segment, encode_segment
from ebbtide.wire import (
    Abandoned,
    Accepted,
    Dispatch,
    Epoch,
    PolicyRef,
    Record,
    Ref,
    SampleKey,
    Scored,
    Spent,
    Value,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "ledger-segment-v1.seg"
WRITER = bytes(range(16))
KEY = SampleKey(job_uid="u-1", step_issued=3, group=2, index=1)
DISPATCH = Dispatch(attempt=1, planner_epoch=2, seq=5)
POLICY = PolicyRef(n=3, attempt=1, digest="ab" * 32)
RECORDS: tuple[Record, ...] = (
    Epoch(n=2, attempt=1, seals=7, parent=None),
    Accepted(KEY, DISPATCH, Ref(path="r", digest="cd" * 32, size=9), POLICY, 40, "stop"),
    Scored(KEY, Value(total=1.5, parts=()), "ef" * 32),
    Abandoned(KEY, "deadline"),
)

ints = st.integers(0, 2**40)
records = st.lists(
    st.builds(Epoch, n=ints, attempt=ints, seals=ints, parent=st.none())
    | st.builds(Spent, ints, st.text(), st.text(), st.text(), st.floats(0, 1e9))
    | st.builds(Abandoned, st.just(KEY), st.text())
)


@given(slot=ints, writer=st.binary(min_size=16, max_size=16), items=records)
def test_decode_inverts_encode(slot: int, writer: bytes, items: list[Record]) -> None:
    segment = decode_segment(encode_segment(slot, writer, items))
    assert segment == Segment(slot, writer, tuple(items))


def test_any_flipped_bit_is_found() -> None:
    data = encode_segment(7, WRITER, RECORDS)
    for bit in range(8 * len(data)):
        damaged = bytearray(data)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(Corrupt):
            decode_segment(bytes(damaged))


def test_any_truncation_or_addition_is_found() -> None:
    data = encode_segment(7, WRITER, RECORDS)
    for wrong in [*(data[:size] for size in range(len(data))), data + b"\0"]:
        with pytest.raises(Corrupt):
            decode_segment(wrong)


@given(st.binary(max_size=200))
def test_arbitrary_bytes_are_corrupt_and_nothing_else(data: bytes) -> None:
    with pytest.raises(Corrupt):
        decode_segment(data)


def test_the_format_has_not_changed() -> None:
    assert encode_segment(7, WRITER, RECORDS) == GOLDEN.read_bytes()


def test_a_segment_from_before_samples_had_turns_reads_as_the_same_records() -> None:
    old = GOLDEN.with_name("ledger-segment-v1-before-turns.seg").read_bytes()
    assert decode_segment(old).records == RECORDS
