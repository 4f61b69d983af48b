"""Finds what a request names, rollout and prompt, and makes text of token ids."""

from __future__ import annotations

import asyncio
import json
from collections import OrderedDict
from pathlib import Path

import msgspec
from tokenizers import Tokenizer

from ebbtide.data.chunks import decode_rows
from ebbtide.data.tokenizers import tokenizer_folder
from ebbtide.errors import Corrupt, Refused
from ebbtide.ports import Blobs
from ebbtide.rewards.outcomes import Answer, Message
from ebbtide.spec import ModelSpec
from ebbtide.turns import said
from ebbtide.wire import PromptRow, Ref, Rollout, ScoreRequest, decode

_CHUNKS_KEPT = 64


class Found(msgspec.Struct, frozen=True):
    """What a request names, and what a scorer judges of it."""

    rollout: Rollout
    row: PromptRow
    answer: Answer


class Library:
    """Reads blobs; prompts come in chunks of many, so the last chunks are kept.

    `role`: whose words an environment's are; empty: the job has none.
    """

    def __init__(self, *, blobs: Blobs, words: Words, role: str = "") -> None:
        self._blobs = blobs
        self._words = words
        self._role = role
        self._chunks: OrderedDict[str, asyncio.Task[tuple[PromptRow, ...]]] = OrderedDict()

    async def find(self, request: ScoreRequest) -> Found:
        """Read it. Raises NotFound, Corrupt, Temporary, Permanent."""
        rollout = decode(await self._blobs.fetch(request.rollout), Rollout)
        if rollout.key != request.key:
            raise Corrupt(f"{request.rollout.path} holds another sample")
        rows = await self._rows(request.prompt_ref.chunk)
        row = rows[request.prompt_ref.row]
        if row.prompt_id != request.prompt_id:
            raise Corrupt(f"{request.prompt_ref.chunk.path} holds another prompt")
        return Found(rollout, row, self._answer(rollout, row))

    def _answer(self, rollout: Rollout, row: PromptRow) -> Answer:
        turns = self._words.turns(rollout, row)
        last = next((text for ours, text in reversed(turns) if ours), "")
        told = tuple(Message("assistant" if ours else self._role, text) for ours, text in turns)
        return Answer(row.text, last, row.reference, row.task, told if self._role else ())

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
        self._plain = _plain(tokenizer)
        self._stop_ids = stop_ids

    def turns(self, rollout: Rollout, row: PromptRow) -> list[tuple[bool, str]]:
        """(Whether the policy said it, text) of each turn, without special tokens.

        Nor has it the token that stopped the policy, or what the template puts around a reply.
        """
        parts = said(rollout, row.opens, row.closes)
        cut = rollout.finish != "stop"
        return [
            (ours, self._text(ids.tolist(), stopped=ours and not (cut and n == len(parts))))
            for n, (ours, ids) in enumerate(parts, start=1)
        ]

    def ids(self, text: str) -> list[int]:
        """What an environment said as token ids; what looks like a special token is text."""
        return list(self._plain.encode(text, add_special_tokens=False).ids)

    def _text(self, ids: list[int], *, stopped: bool) -> str:
        if stopped and ids and ids[-1] in self._stop_ids:
            ids.pop()
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text


def _plain(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that encodes a text whole, and to which no token that was added means anything."""
    whole = json.loads(tokenizer.to_str())
    for token in whole["added_tokens"]:
        token["special"] = True  # else it is found in the text, whatever `encode_special_tokens`
    plain = Tokenizer.from_str(json.dumps(whole))
    plain.encode_special_tokens = True
    plain.no_truncation()
    plain.no_padding()
    return plain


def words(model: ModelSpec) -> Words:
    """Read tokenizer.json of the job's model; raises Refused when it cannot be read."""
    path: Path = tokenizer_folder(model) / "tokenizer.json"
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # noqa: BLE001 - the library raises bare Exception
        raise Refused(f"cannot read {path}: {error}", field="/spec/model") from None
    found = [tokenizer.token_to_id(token) for token in model.stop_tokens]
    return Words(tokenizer=tokenizer, stop_ids=frozenset(n for n in found if n is not None))
