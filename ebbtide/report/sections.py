"""One part of the page."""

from __future__ import annotations

import msgspec


class Section(msgspec.Struct, frozen=True):
    """One part of the page. `note` says how to read it; the table has the same numbers."""

    title: str
    note: str
    svg: str
    legend: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
