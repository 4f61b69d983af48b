"""A new attempt opens a step again: rollouts of the earlier one serve it, if they may (pure)."""

from __future__ import annotations

from collections.abc import Iterator

from ebbtide.wire import Adopted
from services.planner.core.book import Orphan
from services.planner.core.pen import Pen
from services.planner.core.samples import WAITING, OpenStep


def adopt(pen: Pen, step: OpenStep) -> None:
    """Adopt each accepted rollout whose policy and prompt are this plan's, with its score.

    May be repeated after a crash: what is adopted already is no orphan any more, and a sample
    that was handed out anew in between is left to that hand-out.
    """
    for sample, orphan in list(_fitting(pen, step)):
        record = orphan.accepted
        pen.write(Adopted(record.key, record.dispatch.attempt, record.ref))
        if orphan.scored is not None:
            pen.write(orphan.scored)
        assert step.rollouts[sample] is record


def _fitting(pen: Pen, step: OpenStep) -> Iterator[tuple[int, Orphan]]:
    for key, orphan in pen.book.orphans.items():
        sample = step.find(key)
        if sample is None or step.states[sample] != WAITING or step.codes[sample]:
            continue
        same_policy = orphan.accepted.policy == step.plan.policy
        if same_policy and orphan.group == step.group(sample):
            yield sample, orphan
