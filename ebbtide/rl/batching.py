"""How the rows of a batch are laid out over ranks and micro-batches (pure).

Who calls it: the planner when it freezes a batch; the learner runs what the manifest says.
Every rank gets the same number of micro-batches, because with sharded parameters each forward
is a collective: a rank without work at an index computes a dummy row. Micro-batch j has about
the same padded size on all ranks, because at each index the slowest rank is waited for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

import msgspec

from ebbtide.errors import Refused
from ebbtide.rl.packing import Kin, partition_packed
from ebbtide.wire import Ref, Row, SampleKey


class Candidate(msgspec.Struct, frozen=True):
    """One sample that may enter a batch.

    `n_tokens`: tokens of the response that count in the loss (the sum of its action mask).
    `n_context`: all other tokens that are computed (the prompt, tokens of tools); the first
    `n_shared` of them are the prompt, which siblings have too (None: all of them).
    """

    key: SampleKey
    ref: Ref
    n_tokens: int
    advantage: float
    n_context: int = 0
    n_shared: int | None = None

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
    packed: bool = False,
    shared: bool = False,
) -> Layout:
    """Lay `candidates` out over `ranks`; the result does not depend on their order.

    `microbatch_tokens`: largest padded size (rows times longest row) of a micro-batch; one
    sample longer than that gets a micro-batch of its own.
    A sample whose advantage is zero moves nothing: with `skip_zero` it stays in the
    denominators with rank -1 but is not computed (only right without a KL term);
    with `drop_zero` groups of such samples alone leave the batch and its denominators too, and
    are named in `dropped`. `packed`: rows hold several samples (`ebbtide.rl.packing`), and if
    prompts are `shared` siblings are kept together.
    """
    _check(candidates, ranks, microbatch_tokens)
    ordered = sorted(candidates, key=lambda candidate: candidate.key)
    moving = {_group(c) for c in ordered if c.advantage != 0.0 or not drop_zero}
    kept = [c for c in ordered if _group(c) in moving]
    computed = [c for c in kept if not (skip_zero and c.advantage == 0.0)]
    lengths = [c.length for c in computed]
    if packed:
        kin = _kin(computed) if shared else None
        places, microbatches = partition_packed(
            lengths, ranks=ranks, limit=microbatch_tokens, kin=kin
        )
    else:
        places, microbatches = partition(lengths, ranks=ranks, limit=microbatch_tokens)
    placed = dict(zip((c.key for c in computed), places, strict=True))
    return Layout(
        rows=tuple(_row(c, placed.get(c.key, (-1, -1))) for c in kept),
        tokens=sum(c.n_tokens for c in kept),
        sequences=len(kept),
        ranks=ranks,
        microbatches=microbatches,
        dropped=tuple(c.key for c in ordered if _group(c) not in moving),
    )


def partition(
    lengths: Sequence[int], *, ranks: int, limit: int
) -> tuple[list[tuple[int, int]], int]:
    """Place items of these lengths: (rank, micro-batch) of each, and micro-batches per rank.

    Neighbours in length share a micro-batch (little padding). First the fewest micro-batches
    that `limit` padded tokens allow, rounded up to fill all ranks; then the smallest padded
    size that still fits into that many (a min-max contiguous partition).
    """
    order = sorted(range(len(lengths)), key=lambda i: (-lengths[i], i))
    falling = [lengths[i] for i in order]
    sizes = _fill(_sizes(falling, ranks, limit), falling, ranks)
    places = [(-1, -1)] * len(lengths)
    for number, start, size in _by_padded_size(sizes, falling):
        microbatch, turn = divmod(number, ranks)
        # To and fro, so that sizes agree at each index and the sums over all indices too.
        rank = turn if microbatch % 2 == 0 else ranks - 1 - turn
        for i in order[start : start + size]:
            places[i] = (rank, microbatch)
    return places, -(-len(sizes) // ranks)


def _check(candidates: Sequence[Candidate], ranks: int, microbatch_tokens: int) -> None:
    if ranks < 1:
        raise Refused("ranks must be at least 1", field="/ranks")
    if microbatch_tokens < 1:
        raise Refused("microbatch_tokens must be at least 1", field="/microbatch_tokens")
    if len({c.key for c in candidates}) != len(candidates):
        raise Refused("a sample occurs twice in one batch", field="/candidates")


def _group(candidate: Candidate) -> tuple[int, int]:
    return candidate.key.step_issued, candidate.key.group


def _kin(computed: Sequence[Candidate]) -> Kin:
    numbers = {group: n for n, group in enumerate(dict.fromkeys(map(_group, computed)))}
    return Kin([numbers[_group(c)] for c in computed], [_prompt(c) for c in computed])


def _prompt(candidate: Candidate) -> int:
    return candidate.n_context if candidate.n_shared is None else candidate.n_shared


def _row(candidate: Candidate, place: tuple[int, int]) -> Row:
    return Row(
        key=candidate.key,
        ref=candidate.ref,
        n_tokens=candidate.n_tokens,
        advantage=candidate.advantage,
        rank=place[0],
        microbatch=place[1],
    )


def _sizes(falling: Sequence[int], ranks: int, limit: int) -> list[int]:
    """Row counts of consecutive micro-batches over lengths sorted falling."""
    if not falling:
        return []
    wanted = -(-len(_greedy(falling, limit)) // ranks) * ranks
    low, high = 1, limit
    while low < high:
        middle = (low + high) // 2
        if len(_greedy(falling, middle)) <= wanted:
            high = middle
        else:
            low = middle + 1
    return _greedy(falling, high)


def _greedy(falling: Sequence[int], limit: int) -> list[int]:
    sizes: list[int] = []
    start = 0
    while start < len(falling):
        sizes.append(max(1, min(limit // max(1, falling[start]), len(falling) - start)))
        start += sizes[-1]
    return sizes


def _fill(sizes: Sequence[int], falling: Sequence[int], ranks: int) -> list[int]:
    """Halve the largest micro-batches until all ranks have work at every index."""
    filled = list(sizes)
    wanted = min(-(-len(sizes) // ranks) * ranks, len(falling))
    while len(filled) < wanted:
        largest = max((n > 1, padded, -i) for i, (padded, n) in enumerate(_padded(filled, falling)))
        i = -largest[2]
        half = filled[i] // 2
        filled[i : i + 1] = [filled[i] - half, half]
    return filled


def _padded(sizes: Sequence[int], falling: Sequence[int]) -> list[tuple[int, int]]:
    """(padded tokens, rows) of each micro-batch."""
    starts = accumulate(sizes, initial=0)
    return [(n * falling[start], n) for start, n in zip(starts, sizes, strict=False)]


def _by_padded_size(sizes: Sequence[int], falling: Sequence[int]) -> Iterator[tuple[int, int, int]]:
    """(number, start, rows) of each micro-batch, the largest first."""
    starts = accumulate(sizes, initial=0)
    ranked = sorted(
        (-n * falling[start], start, n) for start, n in zip(starts, sizes, strict=False)
    )
    for number, (_, start, n) in enumerate(ranked):
        yield number, start, n
