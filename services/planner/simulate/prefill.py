"""What prompts cost in tokens to compute, by how their beginnings are shared (pure).

Nodes of a trie over blocks: each is computed once where prefill is shared. RLHFless's single
prefix length L is a baseline, by the corrected rule: the largest L whose distinct prefixes D(L) fit.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from services.planner.simulate.answers import Row

BLOCK = 512
"""Tokens of a block in the traces of Mooncake."""


class Prefill(NamedTuple):
    """Tokens of one step's prompts: without any sharing, and as computed by each way."""

    needed: float
    engine_caches: float
    single_length: float
    trie: float
    length: int

    @property
    def saved(self) -> float:
        """By the trie, of what the engines' caches alone would compute."""
        return 1.0 - self.trie / self.engine_caches if self.engine_caches else 0.0


def prefill(prompts: Sequence[Row], actor_of: Sequence[int], samples: int, room: float) -> Prefill:
    """Of these prompts with `samples` answers each; `actor_of`: where each prompt's are decoded.

    `room`: tokens that the prefill actor holds at once.
    """
    length = longest_shared(prompts, room)
    return Prefill(
        needed=float(sum(p.prompt_tokens for p in prompts) * samples),
        engine_caches=_by_actor(prompts, actor_of),
        single_length=_single(prompts, length),
        trie=trie_tokens(prompts),
        length=length,
    )


def trie_tokens(prompts: Sequence[Row]) -> float:
    """Every node once; a last block that is not full counts what it holds."""
    nodes: dict[tuple[int, ...], int] = {}
    loose = 0
    for prompt in prompts:
        path = prompt.blocks
        if not path:
            loose += prompt.prompt_tokens
        for depth in range(1, len(path) + 1):
            rest = prompt.prompt_tokens - BLOCK * (depth - 1)
            key = path[:depth]
            nodes[key] = max(nodes.get(key, 0), min(max(rest, 0), BLOCK))
    return float(sum(nodes.values()) + loose)


def distinct(prompts: Sequence[Row], blocks: int) -> int:
    """D(L): prefixes of so many blocks; never falls as L grows."""
    return len({p.blocks[:blocks] for p in prompts})


def longest_shared(prompts: Sequence[Row], room: float) -> int:
    """L* in blocks: the largest L with D(L) * L within the prefill actor's room."""
    deepest = max((len(p.blocks) for p in prompts), default=0)
    fitting = [n for n in range(deepest + 1) if distinct(prompts, n) * n * BLOCK <= room]
    return max(fitting)


def _single(prompts: Sequence[Row], blocks: int) -> float:
    """The prefix of L blocks once each, the rest of every prompt by itself."""
    heads: dict[tuple[int, ...], int] = {}
    rest = 0
    for prompt in prompts:
        shared = min(blocks * BLOCK, len(prompt.blocks) * BLOCK, prompt.prompt_tokens)
        heads[prompt.blocks[:blocks]] = max(heads.get(prompt.blocks[:blocks], 0), shared)
        rest += prompt.prompt_tokens - shared
    return float(sum(heads.values()) + rest)


def _by_actor(prompts: Sequence[Row], actor_of: Sequence[int]) -> float:
    actors: dict[int, list[Row]] = {}
    for prompt, actor in zip(prompts, actor_of, strict=True):
        actors.setdefault(actor, []).append(prompt)
    return sum(trie_tokens(mine) for mine in actors.values())
