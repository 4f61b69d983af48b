"""Which rendered rows become prepared ones (pure)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from ebbtide.data.rendering import Fields, Rendered
from ebbtide.data.sources import RawRow, to_json
from ebbtide.errors import Refused
from ebbtide.wire import PromptRow, pack_ints


class Limits(msgspec.Struct, frozen=True):
    """Tokens; rows beyond are left out and named."""

    prompt: int
    completion: int


class Sieve:
    """Turns rendered rows into prepared ones; leaves out, and remembers, the too long.

    `unknown`: rows passed whose prompt holds the token `unknown_id`.
    """

    def __init__(
        self, *, limits: Limits, fields: Fields, vocabulary: int, unknown_id: int | None = None
    ) -> None:
        self.too_long: list[str] = []
        self.seen = self.unknown = 0
        self._unknown_id = unknown_id
        self._limits = limits
        self._fields = fields
        self._vocabulary = vocabulary

    def passing(self, raw: Sequence[RawRow], rendered: Sequence[Rendered]) -> Iterator[PromptRow]:
        """The rows within the limits; raises Refused for tokens that the model does not have."""
        for row, found in zip(raw, rendered, strict=True):
            self.seen += 1
            self._check(row, found)
            if self._fits(found):
                self.unknown += self._unknown_id in found.prompt
                yield self._row(row, found)
            else:
                self.too_long.append(row.place)

    def check(self, n_rows: int) -> None:
        """Refuse a dataset without rows."""
        if self.seen == 0:
            raise Refused("the dataset is empty")
        if n_rows == 0:
            detail = f"all {self.seen} rows are too long: raise dataset.maxPromptTokens"
            raise Refused(detail, field="/spec/dataset/maxPromptTokens")

    def _fits(self, found: Rendered) -> bool:
        longest = max(len(found.completion), len(found.rejected))
        answers = longest <= self._limits.completion or not self._fields.completion
        return len(found.prompt) <= self._limits.prompt and answers

    def _check(self, row: RawRow, found: Rendered) -> None:
        if not found.prompt:
            raise Refused(f"{row.place}: the prompt has no tokens")
        if max(*found.prompt, *found.completion, *found.rejected, 0) >= self._vocabulary:
            detail = f"{row.place}: a token is beyond the model's vocabulary of {self._vocabulary}"
            raise Refused(detail, field="/spec/model/tokenizerUri")

    def _row(self, row: RawRow, found: Rendered) -> PromptRow:
        own = {self._fields.prompt, self._fields.completion, self._fields.rejected}
        rest = {name: value for name, value in row.fields.items() if name not in own}
        try:
            reference = to_json(rest)
        except TypeError as error:
            raise Refused(f"{row.place}: {error}") from None
        except RecursionError:
            raise Refused(f"{row.place} is nested too deeply") from None
        return PromptRow(
            prompt_id=row.place,
            tokens=pack_ints(found.prompt),
            text=found.text,
            reference=reference,
            task=row.task,
            source=row.source,
            completion=pack_ints(found.completion),
            rejected=pack_ints(found.rejected),
            opens=pack_ints(found.frame.opens if found.frame else []),
            closes=pack_ints(found.frame.closes if found.frame else []),
        )
