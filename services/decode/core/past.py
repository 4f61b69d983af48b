"""Dispatches that were settled, so that a late copy of their Submit is not run again (pure)."""

from __future__ import annotations

from ebbtide.wire import Dispatch

_REMEMBERED = 1 << 16


class Past:
    """The newest ones; who was settled long ago is forgotten first."""

    def __init__(self) -> None:
        self._settled: dict[Dispatch, None] = {}

    def __contains__(self, dispatch: Dispatch) -> bool:
        return dispatch in self._settled

    def add(self, dispatch: Dispatch) -> None:
        """It was settled now."""
        self._settled[dispatch] = None
        if len(self._settled) > _REMEMBERED:
            del self._settled[next(iter(self._settled))]
