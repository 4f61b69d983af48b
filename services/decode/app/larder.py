"""What an actor reads before a sample can run: its prompt, and tokens to resume from."""

from __future__ import annotations

import asyncio
from collections import OrderedDict

from ebbtide.data.chunks import decode_rows
from ebbtide.errors import Corrupt, EbbtideError, NotFound, Temporary
from ebbtide.ports import Blobs, Hot, Resumed
from ebbtide.wire import Assign, JournalRef, PromptRow, Ref, Span
from services.decode.core.messages import Fetched, FetchFailed

_CHUNKS_KEPT = 64


class Larder:
    """Reads prompts by chunks, which are immutable and kept for their neighbours."""

    def __init__(self, *, blobs: Blobs, hot: Hot) -> None:
        self._blobs, self._hot = blobs, hot
        self._chunks: OrderedDict[str, asyncio.Task[tuple[PromptRow, ...]]] = OrderedDict()

    async def fetch(self, assign: Assign) -> Fetched | FetchFailed:
        """Read what `assign` names; a journal that cannot be read is lost, not waited for."""
        try:
            prompt = await self._prompt(assign)
        except (NotFound, Corrupt) as error:
            return FetchFailed(assign.dispatch, "prompt", str(error))
        if assign.resume is None:
            return Fetched(assign.dispatch, prompt, None)
        try:
            resumed = await self._resume(assign.resume)
        except (NotFound, Corrupt, Temporary) as error:
            return FetchFailed(assign.dispatch, "journal_lost", str(error))
        return Fetched(assign.dispatch, prompt, resumed)

    async def _prompt(self, assign: Assign) -> bytes:
        rows = await self._rows(assign.prompt_ref.chunk)
        if not 0 <= assign.prompt_ref.row < len(rows):
            raise NotFound(f"row {assign.prompt_ref.row} of a chunk with {len(rows)} rows")
        row = rows[assign.prompt_ref.row]
        if row.prompt_id != assign.prompt_id:
            raise Corrupt(f"the chunk holds {row.prompt_id} where {assign.prompt_id} should be")
        return row.tokens

    async def _rows(self, chunk: Ref) -> tuple[PromptRow, ...]:
        """Read and decoded once, however many samples ask at the same time."""
        if chunk.digest not in self._chunks:
            self._chunks[chunk.digest] = asyncio.ensure_future(self._read(chunk))
        self._chunks.move_to_end(chunk.digest)
        reading = self._chunks[chunk.digest]
        while len(self._chunks) > _CHUNKS_KEPT:
            self._chunks.popitem(last=False)
        try:
            return await asyncio.shield(reading)
        except EbbtideError:
            self._chunks.pop(chunk.digest, None)
            raise

    async def _read(self, chunk: Ref) -> tuple[PromptRow, ...]:
        return decode_rows(await self._blobs.fetch(chunk))

    async def _resume(self, ref: JournalRef) -> Resumed:
        chunks = await self._hot.journal(ref)
        spans: list[Span] = []
        for span in (span for chunk in chunks for span in chunk.spans):
            if spans and spans[-1].policy == span.policy and spans[-1].end == span.start:
                spans[-1] = Span(spans[-1].start, span.end, span.policy)
            else:
                spans.append(span)
        tokens = b"".join(chunk.tokens for chunk in chunks)
        logprobs = b"".join(chunk.logprobs for chunk in chunks)
        return Resumed(tokens, logprobs, tuple(spans))
