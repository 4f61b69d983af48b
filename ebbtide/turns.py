"""Turns of an episode as token ids: the mask, and the text so far with what was said (pure).

Spans are the mask: a span says which policy drew tokens [start, end), and a token in no span was
given by the environment. Ids that were sampled are never tokenised again (token-in-token-out).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import msgspec
import numpy as np
from numpy.typing import NDArray

from ebbtide.wire import (
    Journal,
    Rollout,
    SampleKey,
    Span,
    pack_floats,
    pack_ints,
    unpack_ints,
    unpack_mask,
)

Ints = NDArray[np.int32]


class Passage(msgspec.Struct, frozen=True):
    """Tokens [start, end) of a response, all `chosen` by the policy in one turn, or all given."""

    start: int
    end: int
    chosen: bool


def mask_of(spans: Sequence[Span], n_tokens: int) -> NDArray[np.uint8]:
    """The action mask of a response, shape (n_tokens,): 1 where a policy drew the token."""
    mask = np.zeros(n_tokens, dtype="u1")
    for span in spans:
        mask[span.start : span.end] = 1
    return mask


def passages(mask: NDArray[np.uint8]) -> list[Passage]:
    """The response cut where the policy and the environment take turns."""
    edges = (np.flatnonzero(np.diff(mask)) + 1).tolist()
    cuts = [0, *edges, len(mask)] if len(mask) else []
    return [Passage(start, end, bool(mask[start])) for start, end in pairwise(cuts)]


def given_ids(drawn: bytes, opens: bytes, reply: Sequence[int], closes: bytes) -> Ints:
    """What the environment adds to `drawn`: the reply between the ids of the row's chat template.

    A stop token with which `opens` begins is not given again to a turn that ended at it.
    """
    before = unpack_ints(opens)[_drawn_already(unpack_ints(drawn), opens) :]
    return np.concatenate((before, np.asarray(reply, dtype="<i4"), unpack_ints(closes)))


def _drawn_already(drawn: Ints, opens: bytes) -> int:
    """How many ids of `opens` the turn that ends `drawn` has itself."""
    return int(len(drawn) > 0 and len(opens) > 0 and drawn[-1] == unpack_ints(opens)[0])


def replied(rollout: Rollout, given: Ints) -> Journal:
    """The text so far, and the `given` tokens: in no span, and without log-probability."""
    nothing = pack_floats(np.full(len(given), np.nan))
    return Journal(
        start=0,
        tokens=rollout.tokens + pack_ints(given),
        logprobs=rollout.logprobs + nothing,
        spans=rollout.spans,
    )


def said(rollout: Rollout, opens: bytes, closes: bytes) -> list[tuple[bool, Ints]]:
    """Who said what, in order: (whether the policy did, ids), without the template's ids."""
    ids, mask = unpack_ints(rollout.tokens), unpack_mask(rollout.action_mask)
    before, after = len(unpack_ints(opens)), len(unpack_ints(closes))
    parts = []
    for one in passages(mask):
        start, end = one.start, one.end
        if not one.chosen:
            start += before - _drawn_already(ids[:start], opens)
            end -= after
        parts.append((one.chosen, ids[start:end]))
    return parts


def stem(key: SampleKey) -> SampleKey:
    """The key of an episode's first turn, which names the episode."""
    return msgspec.structs.replace(key, turn=0)
