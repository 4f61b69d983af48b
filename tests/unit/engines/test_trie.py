"""The block trie against looking at every row."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.engines.torch.trie import BlockTrie, Text

BLOCK = 2
texts = st.lists(st.integers(0, 1), max_size=9).map(lambda t: np.array(t, dtype=np.int32))
acts = st.tuples(st.sampled_from(["add", "remove", "ask"]), st.integers(0, 3), texts)


def common(a: Text, b: Text) -> int:
    """Tokens of the whole blocks that two texts have in common at their beginning."""
    n = 0
    while n + BLOCK <= min(len(a), len(b)) and list(a[: n + BLOCK]) == list(b[: n + BLOCK]):
        n += BLOCK
    return n


@given(st.lists(acts, max_size=40))
def test_the_longest_common_beginning_is_found(script: list[tuple[str, int, Text]]) -> None:
    trie, held = BlockTrie(BLOCK), dict[int, Text]()
    for act, row, text in script:
        if act == "add":
            trie.add(row, text)
            held[row] = text
        elif act == "remove":
            trie.remove(row)
            held.pop(row, None)
        donor, n = trie.longest(text)
        assert n == max((common(text, other) for other in held.values()), default=0)
        assert donor == -1 if not n else common(text, held[donor]) == n


@given(st.lists(texts, max_size=8))
def test_an_empty_trie_keeps_nothing(many: list[Text]) -> None:
    trie = BlockTrie(BLOCK)
    for row, text in enumerate(many):
        trie.add(row, text)
    for row in range(len(many)):
        trie.remove(row)
    assert not trie._root.children
    assert not trie._held
