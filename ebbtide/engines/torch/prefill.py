"""Prompts computed once and forked to every sample that has them; resumed texts recomputed.

Keys and values cover all but the last token of what is prefilled: the decode step computes
that one and samples the first new token, so siblings never share a sampled token.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from ebbtide.engines.samples import Sample
from ebbtide.engines.torch.kv import KvRows
from ebbtide.engines.torch.runner import Ints, Runner


class Prefiller:
    """Keeps the most recently used prompts, one in each row of `kv`.

    `chunk` bounds the tokens of one forward, padding included. With `fixed` every forward has
    the shape (1, chunk) over the full width, so that its result depends on the text alone.
    """

    def __init__(self, runner: Runner, kv: KvRows, *, chunk: int, fixed: bool) -> None:
        self.computed = 0
        """Tokens prefilled so far, without padding."""
        self.capacity = kv.rows
        self._runner = runner
        self._chunk = chunk
        self._fixed = fixed
        self._kv = kv
        self._row_of: OrderedDict[bytes, int] = OrderedDict()
        self._free = list(range(kv.rows))

    def fork(self, samples: Sequence[Sample], into: KvRows, rows: Sequence[int]) -> None:
        """Give `samples`, of at most `capacity` prompts, their prompt's KV in `rows` of `into`."""
        self._ensure({sample.admission.prompt: sample.prompt for sample in samples})
        length = max((len(sample.prompt) - 1 for sample in samples), default=0)
        if length > 0:
            sources = np.array([self._row_of[sample.admission.prompt] for sample in samples])
            tensor = self._runner.tensor
            into.fork(self._kv, tensor(np.asarray(rows)), tensor(sources), length)

    def recompute(self, samples: Sequence[Sample], into: KvRows, rows: Sequence[int]) -> None:
        """Compute prompt and resumed tokens of `samples` straight into `rows` of `into`."""
        texts = [np.concatenate([s.prompt, s.tokens])[:-1] for s in samples]
        self._fill(into, list(rows), texts)

    def forget(self, prompt: bytes) -> None:
        """Zero a prompt whose KV is not finite; it would be computed anew."""
        if prompt in self._row_of:
            row = self._row_of[prompt]
            self._kv.clear(self._runner.tensor(np.array([row])))
            del self._row_of[prompt]
            self._free.append(row)

    def missing(self, prompt: bytes) -> bool:
        """Whether `prompt` would have to be computed."""
        return prompt not in self._row_of

    def _ensure(self, prompts: dict[bytes, NDArray[np.int32]]) -> None:
        assert len(prompts) <= self.capacity
        for prompt in prompts:
            if prompt in self._row_of:
                self._row_of.move_to_end(prompt)
        absent = [prompt for prompt in prompts if prompt not in self._row_of]
        for prompt in absent:
            self._row_of[prompt] = self._free_row()
        rows = [self._row_of[prompt] for prompt in absent]
        self._fill(self._kv, rows, [prompts[prompt][:-1] for prompt in absent])

    def _free_row(self) -> int:
        return self._free.pop() if self._free else self._row_of.popitem(last=False)[1]

    def _fill(self, kv: KvRows, rows: Sequence[int], texts: Sequence[NDArray[np.int32]]) -> None:
        """Compute the KV of `texts`, in as few forwards as `chunk` allows."""
        pairs = [(row, text) for row, text in zip(rows, texts, strict=True) if len(text)]
        pairs.sort(key=lambda pair: len(pair[1]))
        self.computed += sum(len(text) for _, text in pairs)
        for batch in self._batches(pairs):
            self._fill_batch(kv, batch)

    def _batches(
        self, pairs: list[tuple[int, NDArray[np.int32]]]
    ) -> Iterator[list[tuple[int, NDArray[np.int32]]]]:
        """Split texts, short ones first, so that padded batches stay within the chunk."""
        batch: list[tuple[int, NDArray[np.int32]]] = []
        for pair in pairs:
            if batch and (self._fixed or (len(batch) + 1) * len(pair[1]) > self._chunk):
                yield batch
                batch = []
            batch.append(pair)
        if batch:
            yield batch

    def _fill_batch(self, kv: KvRows, batch: list[tuple[int, NDArray[np.int32]]]) -> None:
        longest = max(len(text) for _, text in batch)
        length = -(-longest // self._chunk) * self._chunk if self._fixed else longest
        tokens = np.zeros((len(batch), length), dtype=np.int64)
        for i, (_, text) in enumerate(batch):
            tokens[i, : len(text)] = text
        rows: Ints = np.array([row for row, _ in batch])
        step = max(1, self._chunk // len(batch))
        for start in range(0, length, step):
            part = tokens[:, start : start + step]
            positions = np.broadcast_to(np.arange(start, start + part.shape[1]), part.shape)
            window = kv.width if self._fixed else start + part.shape[1]
            self._runner.forward(
                kv, rows, np.ascontiguousarray(part), positions.copy(), window=window
            )
