"""How the rows of a batch are laid out over ranks and micro-batches (pure).

Who calls it: the planner when it freezes a batch; the learner runs what the manifest says.
Every rank gets the same number of micro-batches, because with sharded parameters each forward
is a collective: a rank without work at an index computes a dummy row. Micro-batch j has about
the same padded size on all ranks, because at each index the slowest rank is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from ebbtide.errors import Refused
from ebbtide.wire import Ref, Row, SampleKey


class Candidate(msgspec.Struct, frozen=True):
    """One sample that may enter a batch.

    `n_tokens`: tokens of the response that count in the loss (the sum of its action mask).
    `n_context`: all other tokens that are computed (the prompt, tokens of tools).
    """

    key: SampleKey
    ref: Ref
    n_tokens: int
    advantage: float
    n_context: int = 0

    @property
    def length(self) -> int:
        """Tokens that a forward pass of this sample computes."""
        return self.n_context + self.n_tokens


class Layout(msgspec.Struct, frozen=True):
    """The parts of a BatchManifest that follow from its rows; `microbatches` is per rank."""

    rows: tuple[Row, ...]
    tokens: int
    sequences: int
    ranks: int
    microbatches: int
    dropped: tuple[SampleKey, ...]


def lay_out(
    candidates: Sequence[Candidate],
    *,
    ranks: int,
    microbatch_tokens: int,
    drop_zero: bool = False,
    skip_zero: bool = True,
) -> Layout:
    """Lay `candidates` out over `ranks`; the result does not depend on their order.

    `microbatch_tokens`: largest padded size (rows times longest row) of a micro-batch; one
    sample longer than that gets a micro-batch of its own.
    A sample whose advantage is zero moves nothing: with `skip_zero` it stays in the
    denominators with rank -1 but is not computed (only right without a KL term);
    with `drop_zero` it leaves the batch and its denominators too, and is named in `dropped`.
    """
    _check(candidates, ranks, microbatch_tokens)
    ordered = sorted(candidates, key=lambda candidate: candidate.key)
    kept = [c for c in ordered if not (drop_zero and c.advantage == 0.0)]
    computed = [c for c in kept if not (skip_zero and c.advantage == 0.0)]
    bins = _pack(computed, ranks, microbatch_tokens)
    places = _place(bins, ranks)
    return Layout(
        rows=tuple(_row(c, places.get(c.key, (-1, -1))) for c in kept),
        tokens=sum(c.n_tokens for c in kept),
        sequences=len(kept),
        ranks=ranks,
        microbatches=-(-len(bins) // ranks),
        dropped=tuple(c.key for c in ordered if drop_zero and c.advantage == 0.0),
    )


def _check(candidates: Sequence[Candidate], ranks: int, microbatch_tokens: int) -> None:
    if ranks < 1:
        raise Refused("ranks must be at least 1", field="/ranks")
    if microbatch_tokens < 1:
        raise Refused("microbatch_tokens must be at least 1", field="/microbatch_tokens")
    if len({c.key for c in candidates}) != len(candidates):
        raise Refused("a sample occurs twice in one batch", field="/candidates")


def _row(candidate: Candidate, place: tuple[int, int]) -> Row:
    return Row(
        key=candidate.key,
        ref=candidate.ref,
        n_tokens=candidate.n_tokens,
        advantage=candidate.advantage,
        rank=place[0],
        microbatch=place[1],
    )


Bin = list[Candidate]


def _padded(rows: Bin) -> int:
    return len(rows) * max(row.length for row in rows)


def _pack(computed: Sequence[Candidate], ranks: int, limit: int) -> list[Bin]:
    """Micro-batches of neighbours in length, largest first: little padding, equal sizes.

    First the fewest micro-batches that `limit` allows, rounded up to fill all ranks; then the
    smallest padded size that still fits into that many (a min-max contiguous partition).
    """
    rows = sorted(computed, key=lambda c: (-c.length, c.key))
    if not rows:
        return []
    fewest = len(_greedy(rows, limit))
    wanted = min(-(-fewest // ranks) * ranks, len(rows))
    low, high = max(row.length for row in rows), max(limit, rows[0].length)
    while low < high:
        middle = (low + high) // 2
        if len(_greedy(rows, middle)) <= wanted:
            high = middle
        else:
            low = middle + 1
    return sorted(_fill(_greedy(rows, high), wanted), key=lambda b: (-_padded(b), b[0].key))


def _greedy(rows: Sequence[Candidate], limit: int) -> list[Bin]:
    """Fill micro-batches in order; `rows` must be sorted by falling length."""
    bins: list[Bin] = []
    for row in rows:
        if bins and (len(bins[-1]) + 1) * bins[-1][0].length <= limit:
            bins[-1].append(row)
        else:
            bins.append([row])
    return bins


def _fill(bins: list[Bin], wanted: int) -> list[Bin]:
    """Halve the largest micro-batches until there are `wanted`, so that no rank sits idle."""
    filled = list(bins)
    while len(filled) < wanted:
        largest = max((b for b in filled if len(b) > 1), key=lambda b: (_padded(b), len(b)))
        filled.remove(largest)
        half = len(largest) // 2
        filled += [largest[:half], largest[half:]]
    return filled


def _place(bins: Sequence[Bin], ranks: int) -> dict[SampleKey, tuple[int, int]]:
    """Return key -> (rank, micro-batch).

    Bins come largest first and are dealt to and fro, so that sizes agree at each index and
    the sums over all indices agree too.
    """
    places = {}
    for number, rows in enumerate(bins):
        microbatch, turn = divmod(number, ranks)
        rank = turn if microbatch % 2 == 0 else ranks - 1 - turn
        places.update({row.key: (rank, microbatch) for row in rows})
    return places
