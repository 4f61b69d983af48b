"""Where all parts of the planner write: records and effects, in one order (pure)."""

from __future__ import annotations

from ebbtide.wire import ActorCommand, Fence, LearnerCommand, Record
from services.planner.core.book import Book
from services.planner.core.effects import Append, Effect, Send, WriteBlob


class Pen:
    """`now` is the moment of the event in hand. A record is applied to the book as it is written.

    `reachable` is another clock, which stands still while the broker is away: nobody can answer
    then, so what waits for an answer waits by it. `connected`: whether it runs.

    `progress_at`: when a sample, a batch, a checkpoint or the job last got further; None: never.

    That the ledger does not hold it yet is no harm: effects take place in order, so nobody
    outside learns of it before, and a planner whose append fails ends.
    """

    def __init__(self, *, book: Book, now: float) -> None:
        self.book = book
        self.now = now
        self.reachable = now
        self.connected = True
        self.progress_at: float | None = None
        self.fence = Fence(book.attempt, book.epoch)
        self._effects: list[Effect] = []
        self._calls = 0

    def move(self, now: float) -> None:
        """Time went on to `now`."""
        self.reachable += now - self.now if self.connected else 0.0
        self.now = now

    def write(self, record: Record) -> None:
        """Append `record` to the ledger."""
        self.book.apply(record)
        self._effects.append(Append(record))

    def do(self, effect: Effect) -> None:
        """Ask the shell for `effect`."""
        self._effects.append(effect)

    def blob(self, path: str, data: bytes) -> None:
        """Write a blob that the next record names."""
        self._effects.append(WriteBlob(path, data))

    def send(self, to: str, command: ActorCommand | LearnerCommand, timeout: float) -> int:
        """Send a command whose reply matters; returns its call."""
        self._calls += 1
        self._effects.append(Send(self._calls, to, command, timeout))
        return self._calls

    def tell(self, to: str, command: ActorCommand, timeout: float) -> None:
        """Send a command that heartbeats will show to be needed again, if it is lost."""
        self._effects.append(Send(0, to, command, timeout))

    def taken(self) -> list[Effect]:
        """The effects so far; the next ones begin a new list."""
        effects, self._effects = self._effects, []
        return effects
