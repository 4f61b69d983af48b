"""Which rows pass into the prepared data."""

from __future__ import annotations

from typing import Any

import pytest

from ebbtide.data.rendering import Fields, Rendered
from ebbtide.data.sieve import Limits, Sieve
from ebbtide.errors import Refused


def test_fields_nested_too_deeply_to_be_stored_are_refused(make_row: Any) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    sieve = Sieve(limits=Limits(9, 9), fields=Fields(), vocabulary=9)
    with pytest.raises(Refused, match=r"rows\.jsonl:1 is nested too deeply"):
        list(sieve.passing([make_row(prompt="a", x=deep)], [Rendered("a", [1], [])]))
