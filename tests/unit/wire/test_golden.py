"""The bytes of every message: what is written today must be read tomorrow.

After a meant change: `python -m ebbtide.testing.samples > tests/golden/wire-v1.txt`.
"""

from pathlib import Path

import msgspec
import pytest

from ebbtide import wire
from ebbtide.testing.samples import golden_lines, message_types, sample

GOLDEN = Path(__file__).parents[2] / "golden" / "wire-v1.txt"
KINDS = message_types()


def test_no_message_has_changed_its_bytes() -> None:
    assert golden_lines() == GOLDEN.read_text().splitlines()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_decode_inverts_encode(kind: type[wire.Wire]) -> None:
    message = sample(kind)
    assert wire.decode(wire.encode(message), kind) == message


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_nothing_that_is_cut_short_is_read(kind: type[wire.Wire]) -> None:
    data = wire.encode(sample(kind))
    for size in range(len(data)):
        with pytest.raises(msgspec.DecodeError):
            wire.decode(data[:size], kind)


def test_an_unknown_field_is_an_error() -> None:
    data = msgspec.msgpack.encode({"attempt": 1, "planner_epoch": 2, "surprise": 3})
    with pytest.raises(msgspec.ValidationError, match="surprise"):
        wire.decode(data, wire.Fence)
