"""The demonstration's task: reverse a list of words, short lists more often than long ones.

Questions and scorer are reasoning-gym's word_sequence_reversal. The number of words k is drawn
with weight 0.8 ** (k - 2), so answers vary in length and a few are long.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ebbtide import gym

TASK = "word_sequence_reversal"
SHORTEST, LONGEST = 2, 6
_DECAY = 0.8
_SLIP = 0.06
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

Item = Mapping[str, Any]
"""An entry of reasoning-gym: question, answer, metadata."""


def items(*, seed: int, part: int, count: int) -> list[Item]:
    """`count` entries; another `part` never shares a draw with this one."""
    rng = random.Random(f"{seed}/{part}")  # noqa: S311 - a task needs no secrecy
    sizes = range(SHORTEST, LONGEST + 1)
    draws = rng.choices(sizes, weights=[_DECAY ** (k - SHORTEST) for k in sizes], k=count)
    origin = (seed * 8 + part) * 1_000_000
    sources = {k: _source(k, seed=origin, size=count) for k in sizes}
    return [sources[k][number] for number, k in enumerate(draws)]


def _source(k: int, *, seed: int, size: int) -> Any:
    package = gym.package()
    return package.create_dataset(TASK, min_words=k, max_words=k, seed=seed, size=size)


def prompt_row(item: Item) -> dict[str, Any]:
    """A row to reinforce on: the entry itself is the scorer's reference."""
    return {"prompt": item["question"], "task": TASK, **item}


def lesson_rows(lessons: Sequence[Item], *, seed: int, sloppy: float) -> Iterator[dict[str, Any]]:
    """Rows to imitate, in order: clean answers first, then the share `sloppy` with slips.

    Slips must come after mastery: from noisy answers alone nothing is learned in this time.
    """
    rng = random.Random(f"{seed}/slips")  # noqa: S311
    clean = round(len(lessons) * (1 - sloppy))
    for number, item in enumerate(lessons):
        answer = item["answer"] if number < clean else _slip(item["answer"], rng)
        yield {"prompt": item["question"], "completion": f"<answer>{answer}</answer>"}


def _slip(answer: str, rng: random.Random) -> str:
    """Each letter becomes another with a small probability."""
    return "".join(
        rng.choice(_LETTERS) if c.isalpha() and rng.random() < _SLIP else c for c in answer
    )


def bucketed(
    rows: Sequence[Mapping[str, Any]], *, batch: int, seed: int, window: int = 32
) -> Iterator[Mapping[str, Any]]:
    """The rows in batches of alike length, which need little padding.

    Batches are formed and mixed within windows of `window` batches, so clean lessons stay before
    sloppy ones.
    """
    rng = random.Random(f"{seed}/buckets")  # noqa: S311
    for start in range(0, len(rows), batch * window):
        piece = sorted(rows[start : start + batch * window], key=_length)
        batches = [piece[n : n + batch] for n in range(0, len(piece), batch)]
        rng.shuffle(batches)
        for rows_of_batch in batches:
            yield from rows_of_batch


def _length(row: Mapping[str, Any]) -> int:
    return len(row["completion"])
