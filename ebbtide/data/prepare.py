"""Prepare a job's data: `python -m ebbtide.data.prepare --blobs URL < spec.json`.

A process of its own, since transformers is heavy and a service that plans must stay light.
Reads a job's spec (JSON) from standard input; writes one `outcome.Outcome` (JSON) to standard
output and progress to standard error. Exit status 2: the job or its data are at fault, with one
line that says how. Whatever else goes wrong ends with one line too, with the traceback in one line
before it. The result is named by its content, so a second job finds the first's.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import os
import sys
import traceback
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, TextIO

import msgspec
from pydantic import ValidationError

from ebbtide import exits
from ebbtide.adapters.blobs import open_blobs
from ebbtide.data import chunks, tokenizers
from ebbtide.data.framing import Framing
from ebbtide.data.outcome import Outcome, Prepared, Rejected
from ebbtide.data.rendering import Fields, Renderer
from ebbtide.data.sieve import Limits, Sieve
from ebbtide.data.sources import RawRow, content, read
from ebbtide.errors import EbbtideError, NotFound, Refused, Temporary
from ebbtide.ports import Blobs
from ebbtide.spec import DpoSpec, FileSource, RewardModelSpec, RLHFJobSpec, Source, SupervisedSpec
from ebbtide.wire import DatasetIndex, PromptRow, Ref, decode, digest, encode

_FORMAT = 2
_DETAIL = 2000
_TRACE = 16_000
"""Characters; names of fields and messages of libraries may be of any length."""


async def prepare(spec: RLHFJobSpec, *, blobs: Blobs, progress: TextIO) -> Prepared:
    """Prepare the train and the eval part; raises Refused for what the job's author can mend."""
    workshop = Workshop(spec=spec, blobs=blobs, progress=progress)
    supervised = isinstance(spec.algorithm, SupervisedSpec)
    train = await workshop.part("train", spec.dataset.train, supervised)
    if spec.dataset.eval is None:
        return Prepared(train, None)
    return Prepared(train, await workshop.part("eval", spec.dataset.eval, supervised=False))


class Workshop:
    """Prepares parts of one job; the tokenizer is loaded once, and only if a part needs it."""

    def __init__(self, *, spec: RLHFJobSpec, blobs: Blobs, progress: TextIO) -> None:
        self._spec = spec
        self._pairs = isinstance(spec.algorithm, DpoSpec | RewardModelSpec)
        self._blobs = blobs
        self._progress = progress
        self._role = spec.environment.role if spec.environment else ""
        self._identity = tokenizers.identity(spec.model)
        self._tokenizer: Any = None

    async def part(self, name: str, source: Source, supervised: bool) -> Ref:
        """The index of one part, found or made; errors point at /spec/dataset/<name>."""
        try:
            return await self._part(name, source, supervised)
        except Refused as refused:
            if refused.field.startswith("/"):
                raise
            field = f"/spec/dataset/{name}/{refused.field}".rstrip("/")
            raise Refused(refused.detail, field=field) from None

    async def _part(self, name: str, source: Source, supervised: bool) -> Ref:
        limits = self._limits(supervised)
        made_of = [_FORMAT, content(source), limits, supervised, self._identity, self._template()]
        made_of += ["pairs"] if self._pairs else []
        made_of += [f"replies as {self._role}, from the end of the turn"] if self._role else []
        key = digest(msgspec.json.encode(made_of, order="deterministic"))
        if found := await self._find(key):
            self._say(f"{name}: found prepared")
            return found
        if self._tokenizer is None:
            self._tokenizer = tokenizers.load(self._spec.model)
        return await self._make(name, key, source, supervised, limits)

    async def _make(
        self, name: str, key: str, source: Source, supervised: bool, limits: Limits
    ) -> Ref:
        words = tokenizers.vocabulary(self._spec.model, self._tokenizer)
        fields = _fields(source, supervised, pairs=self._pairs)
        renderer = Renderer(
            tokenizer=self._tokenizer,
            template=self._template(),
            fields=fields,
            framing=self._framing(words.stop_ids),
        )
        sieve = Sieve(limits=limits, fields=fields, vocabulary=words.size, unknown_id=words.unknown)
        refs: list[Ref] = []
        n_rows = 0
        async for rows in self._rows(name, read(source), renderer, sieve):
            path = chunks.chunk_path(key, len(refs))
            refs.append(await self._blobs.put(path, chunks.encode_rows(rows)))
            n_rows += len(rows)
        sieve.check(n_rows)
        index = DatasetIndex(
            digest=key,
            n_rows=n_rows,
            chunk_rows=chunks.CHUNK_ROWS,
            chunks=tuple(refs),
            too_long=tuple(sieve.too_long),
            tokenizer_digest=self._identity.tokenizer,
            template_digest=self._identity.template,
            stop_ids=words.stop_ids,
            pad_id=words.pad_id,
            vocab_size=words.size,
            unknown=sieve.unknown,
        )
        self._say(f"{name}: {n_rows} rows, {len(sieve.too_long)} left out as too long")
        if index.warning:
            self._say(f"{name}: warning: {index.warning}")
        return await self._blobs.put(chunks.index_path(key), encode(index))

    async def _rows(
        self, name: str, raw: Iterator[RawRow], renderer: Renderer, sieve: Sieve
    ) -> AsyncIterator[list[PromptRow]]:
        """Rows that pass the sieve, in pieces of exactly CHUNK_ROWS but for the last."""
        ready: list[PromptRow] = []
        while batch := list(itertools.islice(raw, chunks.CHUNK_ROWS)):
            ready.extend(sieve.passing(batch, renderer.render(batch)))
            if len(ready) >= chunks.CHUNK_ROWS:
                yield ready[: chunks.CHUNK_ROWS]
                del ready[: chunks.CHUNK_ROWS]
            self._say(f"{name}: {sieve.seen} rows read")
        if ready:
            yield ready

    async def _find(self, key: str) -> Ref | None:
        path = chunks.index_path(key)
        try:
            data = await self._blobs.get(path)
        except NotFound:
            return None
        decode(data, DatasetIndex)
        return Ref(path=path, digest=digest(data), size=len(data))

    def _limits(self, supervised: bool) -> Limits:
        answer = self._spec.training.max_response_tokens if supervised else 0
        return Limits(prompt=self._spec.dataset.max_prompt_tokens, completion=answer)

    def _framing(self, stop_ids: Sequence[int]) -> Framing | None:
        if not self._role:
            return None
        tokenizer = self._tokenizer
        return Framing(
            role=self._role,
            stops=[tokenizer.decode([stop]) for stop in stop_ids],
            encode=lambda text: tokenizer(text, add_special_tokens=False)["input_ids"],
        )

    def _template(self) -> str | None:
        return self._spec.model.chat_template

    def _say(self, line: str) -> None:
        self._progress.write(f"{line}\n")
        self._progress.flush()


def _fields(source: Source, supervised: bool, *, pairs: bool) -> Fields:
    if isinstance(source, FileSource) and pairs:
        return Fields(source.prompt_field, source.chosen_field, source.rejected_field)
    if isinstance(source, FileSource):
        return Fields(source.prompt_field, source.completion_field if supervised else "")
    if supervised:
        detail = "reasoning_gym gives no completions: supervised jobs need a file"
        raise Refused(detail, field="type")
    return Fields()


async def _answer(blobs_url: str, spec_json: bytes) -> Outcome:
    try:
        spec = RLHFJobSpec.model_validate_json(spec_json)
        blobs = open_blobs(blobs_url, writable=("datasets/*",))
        return await prepare(spec, blobs=blobs, progress=sys.stderr)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = "/spec/" + "/".join(str(part) for part in first["loc"])
        return Rejected(first["msg"], field)
    except Refused as refused:
        return Rejected(refused.detail[:_DETAIL], refused.field)


def _confess(error: Exception) -> None:
    """A bug of ours: the traceback as one line for the log, then the line that people get to see."""
    trace = repr("".join(traceback.format_exception(error))[-_TRACE:])
    said = traceback.format_exception_only(error)[-1].strip().partition("\n")[0][:_DETAIL]
    sys.stderr.write(f"trace: {trace}\nerror: {said}\n")


def main(argv: Sequence[str]) -> int:
    """Read, prepare, answer; returns the exit status."""
    parser = argparse.ArgumentParser(prog="ebbtide.data.prepare")
    parser.add_argument("--blobs", required=True, help="URL of the blob store")
    given = parser.parse_args(argv)
    answers = os.dup(1)
    os.dup2(2, 1)  # what libraries print must not mix with the answer
    try:
        outcome = asyncio.run(_answer(given.blobs, sys.stdin.buffer.read()))
    except EbbtideError as error:
        sys.stderr.write(f"error: {error}\n")
        return exits.EXIT_TEMPORARY if isinstance(error, Temporary) else exits.EXIT_PERMANENT
    except Exception as error:  # noqa: BLE001 - the one place that turns a bug into a line
        _confess(error)
        return exits.EXIT_BUG
    with os.fdopen(answers, "wb") as out:
        out.write(msgspec.json.encode(outcome) + b"\n")
    if isinstance(outcome, Prepared):
        return exits.EXIT_OK
    sys.stderr.write(f"error: {outcome.field}: {outcome.detail}\n")
    return exits.EXIT_REFUSED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
