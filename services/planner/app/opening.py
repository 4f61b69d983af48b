"""Takes a job over: replays its ledger, then claims the next epoch."""

from __future__ import annotations

from ebbtide.ledger import Ledger
from ebbtide.wire import Ref
from services.planner.app.world import World
from services.planner.core.book import Book
from services.planner.core.config import rows_per_step
from services.planner.core.steering import lengths_of


async def take_over(world: World) -> tuple[Ledger, Book]:
    """The ledger in our hands, and the book as it stands. Raises Fenced for an old attempt."""
    settings = world.settings
    book = Book(
        job_uid=settings.job_uid,
        rows_per_step=rows_per_step(world.spec),
        threshold=world.spec.evaluation.pass_threshold,
        lengths=lengths_of(world.spec),
    )
    ledger = Ledger(blobs=world.blobs, clock=world.clock, uid=settings.job_uid, writer=world.writer)

    def parent() -> Ref | None:
        """A new attempt begins from the newest checkpoint, a new planner where the last was."""
        anew = settings.attempt > book.attempt
        return book.newest_checkpoint() if anew else book.parent

    await ledger.take_over(book.apply, attempt=settings.attempt, parent=parent)
    return ledger, book
