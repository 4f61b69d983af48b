from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from services.planner.simulate.answers import Row
from services.planner.simulate.prefill import (
    BLOCK,
    distinct,
    longest_shared,
    prefill,
    trie_tokens,
)

blocks = st.lists(st.integers(0, 2), min_size=1, max_size=6)
prompts_of = st.lists(
    blocks.map(lambda b: Row(BLOCK * len(b), 1, tuple(b))), min_size=1, max_size=12
)


@given(prompts_of)
def test_distinct_prefixes_never_fall_as_they_grow(prompts: list[Row]) -> None:
    counts = [distinct(prompts, length) for length in range(8)]
    assert counts == sorted(counts)


@given(prompts_of, st.integers(0, 20))
def test_the_shared_length_is_the_largest_that_fits(prompts: list[Row], room: int) -> None:
    found = longest_shared(prompts, room * BLOCK)
    assert distinct(prompts, found) * found <= room
    deepest = max(len(p.blocks) for p in prompts)
    assert all(distinct(prompts, n) * n > room for n in range(found + 1, deepest + 1))


@given(prompts_of, st.integers(1, 4))
def test_a_trie_computes_least_and_nothing_shared_most(prompts: list[Row], samples: int) -> None:
    found = prefill(prompts, [n % 3 for n in range(len(prompts))], samples, 1e9)
    assert found.trie <= found.engine_caches <= found.needed
    assert found.trie <= found.single_length


def test_a_node_is_counted_once_and_a_part_of_a_block_as_it_is() -> None:
    both = [Row(BLOCK + 100, 1, (0, 1)), Row(BLOCK + 300, 1, (0, 2))]
    assert trie_tokens(both) == BLOCK + 100 + 300
