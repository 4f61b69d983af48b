"""Spans are the mask, and a reply is found again by what stands around it."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ebbtide import journals
from ebbtide.testing.rollouts import a_rollout
from ebbtide.turns import Passage, given_ids, mask_of, passages, replied, said, stem
from ebbtide.wire import (
    PolicyRef,
    Rollout,
    SampleKey,
    Span,
    pack_ints,
    pack_mask,
    unpack_floats,
    unpack_ints,
)

POLICY = PolicyRef(0, 1, "policy-0")
OPENS, CLOSES = pack_ints([90, 91]), pack_ints([92])
words = st.lists(st.integers(0, 80), min_size=1, max_size=5)
turns = st.builds(lambda ids, stop: [*ids, *stop], words, st.sampled_from([[], [90]]))
"""Of which some end at the token with which OPENS begins."""


def go_on(rollout: Rollout, reply: list[int], turn: list[int]) -> Rollout:
    """What an actor makes of the reply and of a further turn."""
    text = replied(rollout, given_ids(rollout.tokens, OPENS, reply, CLOSES))
    begun = journals.length(text)
    spans = (*text.spans, Span(begun, begun + len(turn), POLICY))
    n = begun + len(turn)
    return structs.replace(
        rollout,
        tokens=text.tokens + pack_ints(turn),
        logprobs=text.logprobs + pack_ints([0] * len(turn)),
        spans=spans,
        action_mask=pack_mask(mask_of(spans, n)),
    )


def test_a_response_in_one_span_is_chosen_whole() -> None:
    assert mask_of((Span(0, 3, POLICY),), 3).tolist() == [1, 1, 1]


def test_what_is_in_no_span_was_given() -> None:
    spans = (Span(0, 2, POLICY), Span(3, 4, POLICY))
    assert mask_of(spans, 5).tolist() == [1, 1, 0, 1, 0]


def test_a_response_is_cut_where_turns_change() -> None:
    found = passages(np.array([1, 1, 0, 1], dtype="u1"))
    assert found == [Passage(0, 2, True), Passage(2, 3, False), Passage(3, 4, True)]
    assert passages(np.array([], dtype="u1")) == []


def test_given_tokens_have_no_log_probability() -> None:
    text = replied(a_rollout([1, 2]), given_ids(pack_ints([1, 2]), OPENS, [5], CLOSES))
    assert unpack_ints(text.tokens).tolist() == [1, 2, 90, 91, 5, 92]
    assert np.isnan(unpack_floats(text.logprobs)).tolist() == [False] * 2 + [True] * 4
    assert text.spans == (Span(0, 2, POLICY),)


def test_an_episode_is_named_by_its_first_turn() -> None:
    assert stem(SampleKey("job", 1, 2, 3, 4)) == SampleKey("job", 1, 2, 3)


def test_a_turns_end_is_given_unless_the_policy_drew_it() -> None:
    assert given_ids(pack_ints([1, 2]), OPENS, [5], CLOSES).tolist() == [90, 91, 5, 92]
    assert given_ids(pack_ints([1, 90]), OPENS, [5], CLOSES).tolist() == [91, 5, 92]
    assert given_ids(pack_ints([1, 90]), b"", [5], b"").tolist() == [5]


@given(first=turns, more=st.lists(st.tuples(words, turns), max_size=3))
def test_who_said_what_is_found_again_in_the_tokens(
    first: list[int], more: list[tuple[list[int], list[int]]]
) -> None:
    rollout, told = a_rollout(first), [(True, first)]
    for reply, turn in more:
        rollout = go_on(rollout, reply, turn)
        told += [(False, reply), (True, turn)]
    assert [(ours, ids.tolist()) for ours, ids in said(rollout, OPENS, CLOSES)] == told
