"""The job's prepared data: made once, then the same for as long as the job lives."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from ebbtide import paths
from ebbtide.data import chunks, launch
from ebbtide.data.outcome import Prepared
from ebbtide.errors import NotFound
from ebbtide.logs import Log
from ebbtide.ports import Blobs
from ebbtide.wire import DatasetIndex, PromptRef, Ref, decode, encode
from services.planner.app.world import World
from services.planner.core.config import Data
from services.planner.core.events import Prompt

_CHUNKS_KEPT = 1024


async def find_data(world: World, log: Log) -> Data:
    """Indices of the data; prepares it in a process of its own unless that was done.

    Raises Refused (with a pointer into the job) for bad input.
    """
    prepared = world.prepared or await _prepared(world, log)
    train = await _index(world.blobs, prepared.train)
    held_out = await _index(world.blobs, prepared.eval) if prepared.eval else None
    log.info(
        "data ready",
        train=train.n_rows,
        eval=held_out.n_rows if held_out else 0,
        too_long=len(train.too_long),
        digest=train.digest,
    )
    for name, index in (("train", train), ("eval", held_out)):
        if index is not None and index.warning:
            log.warning("data", part=name, why=index.warning)
    return Data(train, prepared.train, held_out)


async def _prepared(world: World, log: Log) -> Prepared:
    """What the job began with: a source that changes later does not change a running job."""
    note = paths.data_of(world.settings.job_uid)
    try:
        return decode(await world.blobs.get(note), Prepared)
    except NotFound:
        pass
    log.info("preparing data")
    prepared = await launch.prepare(
        world.spec.model_dump_json(by_alias=True, exclude_unset=True).encode(),
        blobs_url=world.settings.blobs_url,
        timeout=world.settings.prepare_seconds,
        said=lambda line: log.info("data", said=line),
    )
    await world.blobs.put_if_absent(note, encode(prepared))
    return decode(await world.blobs.get(note), Prepared)


async def _index(blobs: Blobs, ref: Ref) -> DatasetIndex:
    return decode(await blobs.fetch(ref), DatasetIndex)


class PromptReader:
    """Reads what the planner needs of prompts, a chunk at a time."""

    def __init__(self, blobs: Blobs) -> None:
        self._blobs = blobs
        self._chunks: OrderedDict[str, list[Prompt]] = OrderedDict()

    async def read(self, refs: Sequence[PromptRef]) -> tuple[Prompt, ...]:
        """The prompts at `refs`, in order."""
        return tuple([(await self._chunk(ref.chunk))[ref.row] for ref in refs])

    async def _chunk(self, ref: Ref) -> list[Prompt]:
        if ref.path not in self._chunks:
            rows = chunks.decode_rows(await self._blobs.fetch(ref))
            self._chunks[ref.path] = [Prompt(r.prompt_id, len(r.tokens) // 4, r.task) for r in rows]
            if len(self._chunks) > _CHUNKS_KEPT:
                self._chunks.popitem(last=False)
        self._chunks.move_to_end(ref.path)
        return self._chunks[ref.path]
