"""Supervised work: which rows make which update, and where each is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ebbtide.rl.batching import partition
from ebbtide.rl.packing import partition_packed
from ebbtide.wire import digest
from services.learner.core.samples import MicroBatch, Sample
from services.learner.core.sharing import ROW_EACH, Rows

WINDOW = 8
"""Updates whose rows are sorted by length together: little padding, and still a good mix."""


@dataclass(frozen=True)
class Update:
    """Indices of the rows of one update."""

    rows: tuple[int, ...]


def updates_of(lengths: Sequence[int], *, batch: int, seed: int) -> list[Update]:
    """Cut rows (of these lengths, in data order) into updates of `batch` rows each.

    Within a window of WINDOW updates rows of like length go together; which update comes when
    is decided by `seed`, so that short ones do not always come first.
    """
    span = WINDOW * batch
    updates: list[Update] = []
    for number, start in enumerate(range(0, len(lengths), span)):
        window = range(start, min(start + span, len(lengths)))
        ranked = sorted(window, key=lambda i: (lengths[i], i))
        pieces = [tuple(ranked[i : i + batch]) for i in range(0, len(ranked), batch)]
        mixed = sorted(pieces, key=lambda piece: digest(f"{seed} {number} {piece[0]}".encode()))
        updates += [Update(piece) for piece in mixed]
    return updates


def my_batches(
    samples: Sequence[Sample], *, rank: int, ranks: int, limit: int, layout: Rows = ROW_EACH
) -> list[MicroBatch]:
    """Micro-batches of `rank` for one update over all `samples`; equally many on each rank."""
    lengths = [len(sample.tokens) for sample in samples]
    place = partition_packed if layout.fill else partition
    places, count = place(lengths, ranks=ranks, limit=limit)
    mine: list[list[Sample]] = [[] for _ in range(count)]
    for sample, (owner, microbatch) in zip(samples, places, strict=True):
        if owner == rank:
            mine[microbatch].append(sample)
    return [layout.of(rows) for rows in mine]
