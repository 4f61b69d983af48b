"""Prompts computed once and forked to every sample that has them; resumed texts recomputed.

Keys and values cover all but the last token of what is prefilled: the decode step computes
that one and samples the first new token, so siblings never share a sampled token. Prompts that
begin alike share whole blocks: the later one starts from a copy.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from ebbtide.engines.samples import Sample
from ebbtide.engines.torch.kv import KvRows
from ebbtide.engines.torch.runner import Ints, Runner
from ebbtide.engines.torch.trie import BlockTrie, Text
from ebbtide.wire import unpack_ints

BLOCK = 16
"""Tokens of a block: what texts that begin alike have in common is cut to a multiple of it."""


class Part(NamedTuple):
    """`row` has the keys and values of text[:start] and is to have those of the rest."""

    row: int
    text: Text
    start: int

    @property
    def length(self) -> int:
        return len(self.text) - self.start


class Prefiller:
    """Keeps the most recently used prompts, one in each row of `kv`.

    `chunk` bounds the tokens of one forward, padding included. With `fixed` every forward has
    the shape (1, chunk) over the full width, so that its result depends on the text alone, and
    texts share whole chunks instead of blocks. Without `share` they share nothing.
    """

    def __init__(
        self, runner: Runner, kv: KvRows, *, chunk: int, fixed: bool, share: bool = True
    ) -> None:
        self.computed = self.shared = self.imported = 0
        """Tokens computed so far, without padding; taken from here; brought along."""
        self.capacity = kv.rows
        self._runner = runner
        self._chunk = chunk
        self._fixed = fixed
        self._share = share
        self._kv = kv
        self._trie = BlockTrie(chunk if fixed else BLOCK)
        self._row_of: OrderedDict[bytes, int] = OrderedDict()
        self._free = list(range(kv.rows))

    def fork(self, samples: Sequence[Sample], into: KvRows, rows: Sequence[int]) -> None:
        """Give `samples`, of at most `capacity` prompts, their prompt's KV in `rows` of `into`."""
        self.shared += self._ensure(samples)
        length = max((len(sample.prompt) - 1 for sample in samples), default=0)
        if length > 0:
            sources = np.array([self._row_of[sample.admission.prompt] for sample in samples])
            tensor = self._runner.tensor
            into.fork(self._kv, tensor(np.asarray(rows)), tensor(sources), length)

    def recompute(self, samples: Sequence[Sample], into: KvRows, rows: Sequence[int]) -> None:
        """Compute prompt and resumed tokens of `samples` straight into `rows` of `into`."""
        self._ensure_brought(samples)
        parts = []
        for row, sample in zip(rows, samples, strict=True):
            text = sample.text[:-1]
            donor, start = self._donor(text)
            if start:
                into.fork_row(self._kv, row, donor, start)
            self._note_start(start, brought=sample.kv is not None)
            parts.append(Part(row, text, start))
        self._fill(into, parts)

    def take_over(self, samples: Sequence[Sample], into: KvRows, rows: Sequence[int]) -> None:
        """Load what `samples` brought along into `rows` of `into`, and compute what it lacks."""
        parts = []
        for row, sample in zip(rows, samples, strict=True):
            assert sample.kv is not None, "it brought nothing"
            into.load(row, sample.kv.data, sample.covered)
            self.imported += sample.covered
            # What is replayed needs no prefill: in fixed shapes the rest is decoded again.
            rest = sample.text[: sample.covered] if self._fixed else sample.text[:-1]
            parts.append(Part(row, rest, sample.covered))
        self._fill(into, parts)

    def prompts(self, prompts: Sequence[bytes]) -> list[memoryview]:
        """KV of at most `capacity` prompts (packed), each of all its tokens but the last."""
        before = self.computed
        texts = {prompt: unpack_ints(prompt)[:-1] for prompt in prompts}
        self._compute(self._reserve(texts), texts)
        needed = sum(len(texts[prompt]) for prompt in prompts)
        self.shared += needed - (self.computed - before)
        return [self._kv.export(self._row_of[p], len(texts[p])) for p in prompts]

    def forget(self, prompt: bytes) -> None:
        """Zero a prompt whose KV is not finite; it would be computed anew."""
        if prompt in self._row_of:
            row = self._row_of.pop(prompt)
            self._kv.clear(self._runner.tensor(np.array([row])))
            self._trie.remove(row)
            self._free.append(row)

    def missing(self, prompt: bytes) -> bool:
        """Whether `prompt` would have to be computed."""
        return prompt not in self._row_of

    # --- rows of prompts ------------------------------------------------------------------------

    def _ensure(self, samples: Sequence[Sample]) -> int:
        """Have a row for each prompt; returns how many tokens nobody had to compute or bring."""
        before = self.computed + self.imported
        texts = {sample.admission.prompt: sample.prompt[:-1] for sample in samples}
        absent = self._reserve(texts)
        self._adopt(samples, absent)
        self._compute(absent, texts)
        needed = sum(len(sample.prompt) - 1 for sample in samples)
        return needed - (self.computed + self.imported - before)

    def _ensure_brought(self, samples: Sequence[Sample]) -> None:
        """Rows for the prompts whose KV a resumed sample brought."""
        brought = [sample for sample in samples if sample.kv is not None]
        self._adopt(brought, self._reserve(s.admission.prompt for s in brought), count=False)

    def _reserve(self, prompts: Iterable[bytes]) -> dict[bytes, int]:
        """Rows for all of `prompts`; returns those that were absent, whose rows are empty."""
        wanted = dict.fromkeys(prompts)
        assert len(wanted) <= self.capacity
        for prompt in wanted:
            if prompt in self._row_of:
                self._row_of.move_to_end(prompt)
        absent = [prompt for prompt in wanted if prompt not in self._row_of]
        for prompt in absent:
            self._row_of[prompt] = self._free_row()
        return {prompt: self._row_of[prompt] for prompt in absent}

    def _free_row(self) -> int:
        if self._free:
            return self._free.pop()
        row = self._row_of.popitem(last=False)[1]
        self._trie.remove(row)
        return row

    def _adopt(
        self, samples: Sequence[Sample], absent: dict[bytes, int], *, count: bool = True
    ) -> None:
        """Load prompts that were brought along; takes them out of `absent`."""
        for sample in samples:
            if sample.kv is None or sample.admission.prompt not in absent:
                continue
            row, text = absent.pop(sample.admission.prompt), sample.prompt[:-1]
            self._kv.load(row, sample.kv.data, len(text))
            self._trie.add(row, text)
            self.imported += len(text) if count else 0

    def _compute(self, absent: dict[bytes, int], texts: dict[bytes, Text]) -> None:
        """Compute prompts into their rows, those that others begin like before the others."""
        waves: dict[int, int] = {}
        plan: list[list[tuple[Part, int]]] = []
        for prompt, row in absent.items():
            donor, start = self._donor(texts[prompt])
            wave = waves[row] = waves.get(donor, -1) + 1
            plan.extend([] for _ in range(wave + 1 - len(plan)))
            plan[wave].append((Part(row, texts[prompt], start), donor))
            self._trie.add(row, texts[prompt])
        for parts in plan:
            for part, donor in parts:
                if part.start:
                    self._kv.fork_row(self._kv, part.row, donor, part.start)
            self._fill(self._kv, [part for part, _ in parts])

    def _donor(self, text: Text) -> tuple[int, int]:
        return self._trie.longest(text) if self._share else (-1, 0)

    def _note_start(self, tokens: int, *, brought: bool) -> None:
        if brought:
            self.imported += tokens
        else:
            self.shared += tokens

    # --- forwards -------------------------------------------------------------------------------

    def _fill(self, kv: KvRows, parts: Sequence[Part]) -> None:
        """Compute what `parts` lack, in as few forwards as `chunk` allows."""
        todo = sorted((part for part in parts if part.length), key=lambda part: part.length)
        self.computed += sum(part.length for part in todo)
        for batch in self._batches(todo):
            self._fill_batch(kv, batch)

    def _batches(self, parts: list[Part]) -> Iterator[list[Part]]:
        """Split parts, short ones first, so that padded batches stay within the chunk."""
        batch: list[Part] = []
        for part in parts:
            if batch and (self._fixed or (len(batch) + 1) * part.length > self._chunk):
                yield batch
                batch = []
            batch.append(part)
        if batch:
            yield batch

    def _fill_batch(self, kv: KvRows, batch: list[Part]) -> None:
        longest = max(part.length for part in batch)
        length = -(-longest // self._chunk) * self._chunk if self._fixed else longest
        tokens = np.zeros((len(batch), length), dtype=np.int64)
        for i, part in enumerate(batch):
            tokens[i, : part.length] = part.text[part.start :]
        rows: Ints = np.array([part.row for part in batch])
        starts = np.array([[part.start] for part in batch])
        step = max(1, self._chunk // len(batch))
        for at in range(0, length, step):
            some = np.ascontiguousarray(tokens[:, at : at + step])
            # Padding may run over the end of a row; no text reaches its last position.
            positions = np.minimum(starts + np.arange(at, at + some.shape[1]), kv.width - 1)
            window = kv.width if self._fixed else int(positions.max()) + 1
            self._runner.forward(kv, rows, some, positions, window=window)
