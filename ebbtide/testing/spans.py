"""Spans in memory."""

from __future__ import annotations

from ebbtide.tracing import Span


class FakeSpans:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.on, self.told = True, list[Span]()

    def add(self, span: Span) -> None:
        """Keep it."""
        self.told.append(span)

    def close(self) -> None:
        """Nothing is owed."""
