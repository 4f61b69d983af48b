"""Token journals: what a dispatch has drawn so far, in chunks (pure).

Chunks may be stored twice (a retried append) or reach past the watermark (an append whose
heartbeat was lost); reading must still give tokens [0, n) exactly once, or say that it cannot.
"""

from __future__ import annotations

from collections.abc import Iterable

from ebbtide.errors import Corrupt, NotFound
from ebbtide.wire import Journal, JournalRef, Span, encode

TOKEN_BYTES = 4


def name(ref: JournalRef) -> str:
    """Key of a journal in a hot store; `n_tokens` is no part of it."""
    key, hand = ref.key, ref.dispatch
    sample = f"{key.job_uid}:{key.step_issued}:{key.group}:{key.index}:{key.turn}"
    return f"journal:{sample}:{hand.attempt}.{hand.planner_epoch}.{hand.seq}"


def length(chunk: Journal) -> int:
    """Number of tokens in `chunk`; raises Corrupt if its parts disagree."""
    if len(chunk.tokens) != len(chunk.logprobs) or len(chunk.tokens) % TOKEN_BYTES:
        raise Corrupt("journal chunk with tokens and log-probabilities of unequal length")
    return len(chunk.tokens) // TOKEN_BYTES


def cover(chunks: Iterable[Journal], n_tokens: int) -> list[Journal]:
    """Chunks that cover tokens [0, n_tokens) exactly once; raises NotFound at a gap.

    A dispatch never draws a position twice, so of chunks that overlap either may be taken.
    """
    covered: list[Journal] = []
    reached = 0
    for chunk in sorted(chunks, key=lambda chunk: (chunk.start, encode(chunk))):
        if reached >= n_tokens or chunk.start > reached:
            break
        if chunk.start + length(chunk) > reached:
            covered.append(cut(chunk, reached, n_tokens))
            reached = covered[-1].start + length(covered[-1])
    if reached < n_tokens:
        raise NotFound(f"journal holds {reached} of {n_tokens} tokens")
    return covered


def cut(chunk: Journal, start: int, end: int) -> Journal:
    """The part of `chunk` inside tokens [start, end)."""
    first = max(start, chunk.start)
    last = min(end, chunk.start + length(chunk))
    part = slice((first - chunk.start) * TOKEN_BYTES, (last - chunk.start) * TOKEN_BYTES)
    spans = tuple(
        Span(max(span.start, first), min(span.end, last), span.policy)
        for span in chunk.spans
        if span.end > first and span.start < last
    )
    return Journal(first, chunk.tokens[part], chunk.logprobs[part], spans)
