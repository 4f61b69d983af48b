"""What an attempt restores from: the parent that the ledger names (protocol.md 2).

The planner claims its epoch with the parent in one conditional put, so planner and learner
agree by construction, and a manifest that a fenced planner committed later is never found.
"""

from __future__ import annotations

from ebbtide import paths
from ebbtide.errors import DeadlineExceeded, Fenced, NotFound
from ebbtide.ledger import decode_segment
from ebbtide.ports import Blobs, Clock
from ebbtide.wire import Epoch, Ref, digest

POLL_SECONDS = 0.5


async def find_parent(
    *, blobs: Blobs, clock: Clock, uid: str, attempt: int, patience: float
) -> Ref | None:
    """Return the manifest that `attempt` starts from, None for a fresh start.

    The first attempt of a job has none and does not wait. Later ones wait up to `patience`
    seconds for their planner's epoch; raises DeadlineExceeded, or Fenced if a later attempt
    exists.
    """
    deadline = clock.now() + patience
    seen, newest = 0, None
    while True:
        names = await blobs.list(paths.segments(uid))
        newest = await _last_epoch(blobs, names[seen:]) or newest
        seen = len(names)
        if newest is None and attempt <= 1:
            return None
        if newest is not None and newest.attempt > attempt:
            raise Fenced(f"attempt {attempt} is over: the ledger is at {newest.attempt}")
        if newest is not None and newest.attempt == attempt:
            return newest.parent
        if clock.now() > deadline:
            raise DeadlineExceeded(f"no planner of attempt {attempt} in {patience} s")
        await clock.sleep(POLL_SECONDS)


async def parent_of(blobs: Blobs, uid: str, attempt: int) -> Ref | None:
    """The manifest that `attempt` of a job began from; None: from the job's model.

    Raises NotFound if the ledger knows no such attempt.
    """
    if attempt == 1:
        return None
    for path in await blobs.list(paths.segments(uid)):
        for record in decode_segment(await blobs.get(path)).records:
            if isinstance(record, Epoch) and record.attempt == attempt:
                return record.parent
    raise NotFound(f"the ledger of {uid} has no attempt {attempt}")


async def manifest_at(blobs: Blobs, path: str) -> Ref:
    """Return a reference to the manifest at `path`, by what lies there now."""
    data = await blobs.get(path)
    return Ref(path=path, digest=digest(data), size=len(data))


async def _last_epoch(blobs: Blobs, names: list[str]) -> Epoch | None:
    for path in reversed(names):
        segment = decode_segment(await blobs.get(path))
        epochs = [record for record in segment.records if isinstance(record, Epoch)]
        if epochs:
            return epochs[-1]
    return None
