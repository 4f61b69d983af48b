"""What an actor reads before a sample can run: its prompt, and tokens to resume from."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from ebbtide.data.chunks import decode_rows
from ebbtide.errors import Corrupt, EbbtideError, NotFound, Temporary
from ebbtide.ports import Blobs, Clock, Hot, Resumed
from ebbtide.wire import Assign, Journal, JournalRef, PromptRow, Ref, Span, decode
from services.decode.core.messages import Fetched, FetchFailed

RETRY_SECONDS = 0.5
JOURNAL_SECONDS = 10.0
"""So long an unreachable hot store is asked for a journal before it counts as lost."""
_CHUNKS_KEPT = 64


class Larder:
    """Reads prompts by chunks, which are immutable and kept for their neighbours."""

    def __init__(self, *, blobs: Blobs, hot: Hot, clock: Clock) -> None:
        self._blobs, self._hot, self._clock = blobs, hot, clock
        self._chunks: OrderedDict[str, asyncio.Task[tuple[PromptRow, ...]]] = OrderedDict()

    async def fetch(self, assign: Assign) -> Fetched | FetchFailed:
        """Read what `assign` names.

        Raises Temporary while the blob store fails: that is no fault of the prompt.
        """
        try:
            prompt = await self._prompt(assign)
        except (NotFound, Corrupt) as error:
            return FetchFailed(assign.dispatch, "prompt", str(error))
        if assign.resume is None:
            return await self._given(assign, prompt)
        try:
            resumed = await self._resume(assign.resume)
        except (NotFound, Corrupt, Temporary) as error:
            return FetchFailed(assign.dispatch, "journal_lost", str(error))
        return Fetched(assign.dispatch, prompt, resumed)

    async def _given(self, assign: Assign, prompt: bytes) -> Fetched | FetchFailed:
        """The turn from its beginning."""
        if assign.given is None:
            return Fetched(assign.dispatch, prompt, None)
        try:
            text = decode(await self._blobs.fetch(assign.given), Journal)
        except (NotFound, Corrupt, msgspec.MsgspecError) as error:
            return FetchFailed(assign.dispatch, "prompt", f"what the turn begins from: {error}")
        return Fetched(assign.dispatch, prompt, Resumed(text.tokens, text.logprobs, text.spans))

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
        try:
            return decode_rows(await self._blobs.fetch(chunk))
        except msgspec.MsgspecError as error:
            raise Corrupt(f"{chunk.path} holds no prompts: {error}") from None

    async def _journal(self, ref: JournalRef) -> Sequence[Journal]:
        deadline = self._clock.now() + JOURNAL_SECONDS
        while True:
            try:
                return await self._hot.journal(ref)
            except Temporary:
                if self._clock.now() >= deadline:
                    raise
                await self._clock.sleep(RETRY_SECONDS)

    async def _resume(self, ref: JournalRef) -> Resumed:
        chunks = await self._journal(ref)
        spans: list[Span] = []
        for span in (span for chunk in chunks for span in chunk.spans):
            if spans and spans[-1].policy == span.policy and spans[-1].end == span.start:
                spans[-1] = Span(spans[-1].start, span.end, span.policy)
            else:
                spans.append(span)
        tokens = b"".join(chunk.tokens for chunk in chunks)
        logprobs = b"".join(chunk.logprobs for chunk in chunks)
        return Resumed(tokens, logprobs, tuple(spans))
