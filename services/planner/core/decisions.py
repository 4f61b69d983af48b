"""The planner's four decisions as plain functions: length, actor count, assignment, migration.

This version decides statically; better rules replace these functions and nothing around them.
All are pure and cheap: they are asked once per step, and `moves` once per tick.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from ebbtide.wire import GroupPlan
from services.planner.core.config import Grpo
from services.planner.core.samples import OpenStep

Group = int
"""Number of a group in its plan."""


def predicted_tokens(group: GroupPlan) -> float:
    """Expected response length of one sample of `group`, tokens. Static: the limit."""
    return float(group.max_new_tokens)


def wanted_actors(work: Grpo, groups: Sequence[GroupPlan]) -> int:
    """How many actors the pool should have for this step. Static: what the job says."""
    return work.replicas if groups else 0


def equal_count(groups: Sequence[GroupPlan], n: int) -> list[list[Group]]:
    """Split `groups` over `n` actors: sorted by prediction, into shares of equal count.

    RLHFless (2602.22718) section 4: neighbours in length decode together. Whole groups, so that
    each prompt is prefilled on one actor alone. Training and evaluation groups are split apart,
    so that each actor gets the same mix.
    """
    ordered = sorted(range(len(groups)), key=lambda g: predicted_tokens(groups[g]))
    train = [g for g in ordered if groups[g].purpose == "train"]
    other = [g for g in ordered if groups[g].purpose != "train"]
    shares = zip(_split(train, n), _split(other, n), strict=True)
    return [[*mine, *others] for mine, others in shares]


def moves(step: OpenStep) -> Sequence[int]:
    """Samples that are to be cut now and go on elsewhere. Static: none."""
    assert step is not None
    return ()


def _split(items: Sequence[Group], n: int) -> list[list[Group]]:
    cuts = [len(items) * i // n for i in range(n + 1)]
    return [list(items[a:b]) for a, b in pairwise(cuts)]
