"""What `ebbtide doctor` says of NIXL."""

from __future__ import annotations

import pytest

from ebbtide.cli.doctor import memlock, nixl
from ebbtide.transfer.nixl import installed


@pytest.mark.skipif(not installed(), reason="install ebbtide[nixl] (Linux)")
def test_the_doctor_moves_bytes_by_nixl_and_says_how_fast() -> None:
    found = nixl()
    assert (found.verdict, "GiB/s" in found.found) == ("ok", True), found


def test_the_doctor_knows_how_much_memory_may_be_pinned() -> None:
    assert memlock().check == "memlock"
    assert "pinned" in memlock().found or memlock().found == "unlimited"
