"""The bytes of an export: what one version writes another on the same host must read.

After a meant change, with a new version: write `golden()` to the file.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ebbtide.errors import Corrupt
from ebbtide.transfer import frames
from ebbtide.wire import KvKey, KvTicket

FILE = Path(__file__).parents[2] / "golden" / "kv-export-v1.kv"
TICKET = KvTicket(
    KvKey("policy", "prefix", 3, "rows1:float32:l1:h1:d2"), "a0", 7, "a1", 30.0, b"a0.7/00000000"
)
BODY = np.arange(48, dtype=np.uint8)


def golden() -> frames.Bytes:
    into = np.zeros(frames.body_start(TICKET, len(BODY)) + len(BODY), dtype=np.uint8)
    frames.write(into, TICKET, 123.5, BODY)
    return into


def test_no_export_has_changed_its_bytes() -> None:
    assert golden().tobytes() == FILE.read_bytes()


def test_it_is_read_as_it_was_written() -> None:
    data = np.frombuffer(FILE.read_bytes(), dtype=np.uint8)
    frame = frames.read_frame(data)
    body = data[frame.start : frame.start + frame.size]
    assert (frame.header.ticket, frame.header.until) == (TICKET, 123.5)
    assert body.tobytes() == BODY.tobytes()
    assert frames.holds(body, frame.header.sums)


@pytest.mark.parametrize("size", [0, 10, 24, 100])
def test_what_is_cut_short_is_corrupt(size: int) -> None:
    with pytest.raises(Corrupt):
        frames.read_frame(golden()[:size])
