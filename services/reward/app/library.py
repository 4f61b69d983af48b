"""Finds what a request names, rollout and prompt, and makes text of token ids."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from pathlib import Path

from tokenizers import Tokenizer

from ebbtide.data.chunks import decode_rows
from ebbtide.data.tokenizers import tokenizer_folder
from ebbtide.errors import Corrupt, Refused
from ebbtide.ports import Blobs
from ebbtide.rewards.outcomes import Answer
from ebbtide.spec import ModelSpec
from ebbtide.wire import PromptRow, Ref, Rollout, ScoreRequest, decode, unpack_ints

_CHUNKS_KEPT = 64


class Library:
    """Reads blobs; prompts come in chunks of many, so the last chunks are kept."""

    def __init__(self, *, blobs: Blobs, words: Words) -> None:
        self._blobs = blobs
        self._words = words
        self._chunks: OrderedDict[str, asyncio.Task[tuple[PromptRow, ...]]] = OrderedDict()

    async def answer(self, request: ScoreRequest) -> Answer:
        """What a scorer judges. Raises NotFound, Corrupt, Temporary, Permanent."""
        rollout = decode(await self._blobs.fetch(request.rollout), Rollout)
        if rollout.key != request.key:
            raise Corrupt(f"{request.rollout.path} holds another sample")
        rows = await self._rows(request.prompt_ref.chunk)
        row = rows[request.prompt_ref.row]
        if row.prompt_id != request.prompt_id:
            raise Corrupt(f"{request.prompt_ref.chunk.path} holds another prompt")
        return Answer(row.text, self._words.text(rollout), row.reference, row.task)

    async def _rows(self, chunk: Ref) -> tuple[PromptRow, ...]:
        task = self._chunks.get(chunk.path)
        if task is None or (task.done() and (task.cancelled() or task.exception())):
            task = self._chunks[chunk.path] = asyncio.create_task(self._read(chunk))
        self._chunks.move_to_end(chunk.path)
        while len(self._chunks) > _CHUNKS_KEPT:
            self._chunks.popitem(last=False)
        return await asyncio.shield(task)

    async def _read(self, chunk: Ref) -> tuple[PromptRow, ...]:
        return decode_rows(await self._blobs.fetch(chunk))


class Words:
    """The job's tokenizer, without transformers: only what turns ids into text."""

    def __init__(self, *, tokenizer: Tokenizer, stop_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._stop_ids = stop_ids

    def text(self, rollout: Rollout) -> str:
        """The response as text, without special tokens and without the token that stopped it."""
        ids = unpack_ints(rollout.tokens).tolist()
        if rollout.finish == "stop" and ids and ids[-1] in self._stop_ids:
            ids.pop()
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text


def words(model: ModelSpec) -> Words:
    """Read tokenizer.json of the job's model; raises Refused when it cannot be read."""
    path: Path = tokenizer_folder(model) / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the library raises bare Exception
        raise Refused(f"cannot read {path}: {error}", field="/spec/model") from None
    found = [tokenizer.token_to_id(token) for token in model.stop_tokens]
    return Words(tokenizer=tokenizer, stop_ids=frozenset(n for n in found if n is not None))
