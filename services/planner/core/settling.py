"""What actors are to be told of their terminal facts, gathered into few messages (pure)."""

from __future__ import annotations

from collections import defaultdict

from ebbtide.wire import Dispatch, Settle
from services.planner.core.pen import Pen

_AT_MOST = 1024
"""Dispatches in one message, which must stay far below the broker's limit."""


class Settling:
    """Each actor's accepted and void dispatches.

    A lost Settle is made good by the next heartbeat that still shows the dispatch in its outbox.
    """

    def __init__(self, *, pen: Pen, gather: float, timeout: float) -> None:
        self._pen, self._gather, self._timeout = pen, gather, timeout
        self._accepted: dict[str, list[Dispatch]] = defaultdict(list)
        self._void: dict[str, list[Dispatch]] = defaultdict(list)
        self._since: float | None = None

    def accepted(self, actor: str, dispatch: Dispatch) -> None:
        """The ledger has this dispatch's rollout."""
        self._accepted[actor].append(dispatch)
        self._started()

    def void(self, actor: str, dispatch: Dispatch) -> None:
        """Nobody needs what this dispatch brought."""
        self._void[actor].append(dispatch)
        self._started()

    def flush(self, *, at_once: bool = False) -> None:
        """Send what was gathered for long enough, or all of it."""
        if self._since is None:
            return
        if not at_once and self._pen.now - self._since < self._gather:
            return
        for actor in sorted(self._accepted.keys() | self._void.keys()):
            self._send(actor, self._accepted.pop(actor, []), self._void.pop(actor, []))
        self._since = None

    def _started(self) -> None:
        if self._since is None:
            self._since = self._pen.now

    def _send(self, actor: str, accepted: list[Dispatch], void: list[Dispatch]) -> None:
        while accepted or void:
            now, accepted = accepted[:_AT_MOST], accepted[_AT_MOST:]
            room = _AT_MOST - len(now)
            gone, void = void[:room], void[room:]
            command = Settle(self._pen.fence, tuple(now), tuple(gone))
            self._pen.tell(actor, command, self._timeout)
