"""What a planner works with, and the data that it plans over."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from ebbtide.data.chunks import decode_rows
from ebbtide.data.launch import prepare
from ebbtide.logs import Log
from ebbtide.ports import Blobs, Bus, Clock, Cluster
from ebbtide.wire import DatasetIndex, PromptRef, PromptRow, Ref, decode
from services.planner.core.config import Data
from services.planner.core.effects import LoadPrompts
from services.planner.core.events import Prompt, PromptsLoaded
from services.planner.settings import PlannerSettings

_CHUNKS_KEPT = 16


@dataclass(frozen=True, kw_only=True)
class World:
    """`cluster` is None where no job object is at hand (tests, replays)."""

    settings: PlannerSettings
    blobs: Blobs
    bus: Bus
    clock: Clock
    cluster: Cluster | None
    log: Log


async def prepared_data(world: World) -> Data:
    """Prepare the job's data, or find it prepared; raises Refused for bad input."""
    settings, log = world.settings, world.log
    refs = await prepare(
        settings.spec.encode(),
        blobs_url=settings.blobs_url,
        timeout=settings.prepare_seconds,
        said=lambda line: log.info("preparing data", said=line),
    )
    held_out = refs.eval
    return Data(
        train=await _index(world.blobs, refs.train),
        train_ref=refs.train,
        eval=await _index(world.blobs, held_out) if held_out else None,
    )


async def _index(blobs: Blobs, ref: Ref) -> DatasetIndex:
    return decode(await blobs.fetch(ref), DatasetIndex)


class Library:
    """Reads prompts of the prepared data; chunks are kept for their neighbours."""

    def __init__(self, *, blobs: Blobs) -> None:
        self._blobs = blobs
        self._chunks: OrderedDict[str, tuple[PromptRow, ...]] = OrderedDict()

    async def load(self, wanted: LoadPrompts) -> PromptsLoaded:
        """What the core must know of these prompts, in their order."""
        train, held_out = await self._prompts(wanted.train), await self._prompts(wanted.eval)
        return PromptsLoaded(wanted.step, train, held_out)

    async def _prompts(self, refs: Sequence[PromptRef]) -> tuple[Prompt, ...]:
        rows = [(await self._rows(ref.chunk))[ref.row] for ref in refs]
        return tuple(Prompt(row.prompt_id, len(row.tokens) // 4) for row in rows)

    async def _rows(self, chunk: Ref) -> tuple[PromptRow, ...]:
        known = self._chunks.get(chunk.digest)
        if known is None:
            known = self._chunks[chunk.digest] = decode_rows(await self._blobs.fetch(chunk))
        self._chunks.move_to_end(chunk.digest)
        while len(self._chunks) > _CHUNKS_KEPT:
            self._chunks.popitem(last=False)
        return known
