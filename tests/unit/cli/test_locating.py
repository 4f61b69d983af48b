"""What people put for the gateway's address."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.addresses import fault
from ebbtide.errors import Refused
from ebbtide.locating import locate

FINE = [
    "http://here",
    "https://gate_way.example:8470/path",
    "http://[::1]:8470",
    "http://bücher.de",
]
WRONG = {
    "localhost:8470": "begins with http:// or https://",
    "http://": "begins with http:// or https://",
    "http://here:84700": "Port out of range",
    "http://[::1": "cannot be read as an address",
    "http://here..com": "is no host",
    "http://here:0": "nobody is at port 0",
}


@pytest.mark.parametrize("url", FINE)
def test_an_address_that_can_be_called_has_no_fault(url: str) -> None:
    assert not fault(url)


@pytest.mark.parametrize(("url", "words"), WRONG.items())
def test_an_address_that_is_none_is_named_with_where_it_stands(
    url: str, words: str, tmp_path: Path
) -> None:
    with pytest.raises(Refused, match=f"EBBTIDE_URL: .*{words}"):
        locate({"EBBTIDE_URL": url}, tmp_path)
    own = tmp_path / ".config/ebbtide/client.json"
    own.parent.mkdir(parents=True)
    own.write_text(f'{{"url": "{url}"}}')
    with pytest.raises(Refused, match=f"client.json: url: .*{words}"):
        locate({}, tmp_path)
