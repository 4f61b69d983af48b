"""Dynamic sampling: other prompts in place of groups that teach nothing (pure).

DAPO (arXiv 2503.14476, section 3.2) draws until the batch is full. Here the rounds have a bound, so
that a step ends where hardly any prompt has variance left. What a round draws follows from the
ledger alone: a planner that starts anew asks for the very same prompts.
"""

from __future__ import annotations

from services.planner.core.batches import moving_groups
from services.planner.core.config import Grpo, JobConfig
from services.planner.core.samples import VALUED, OpenStep


def refills(config: JobConfig) -> bool:
    """Whether steps may draw more than they began with."""
    return isinstance(config.work, Grpo) and config.work.refills > 0


def lacking(step: OpenStep, config: JobConfig, *, frozen: bool) -> int:
    """How many groups the decoded and scored step is to draw in addition; 0: it goes on as it is.

    `frozen`: its batch is. A step that has had its time draws nothing more, nor one in which nothing
    has a reward, which is no matter of prompts.
    """
    work = config.work
    if not isinstance(work, Grpo) or step.plan.step >= config.total_steps:
        return 0
    over = frozen or step.age > config.deadlines.step or step.refills >= work.refills
    if over or not step.states.count(VALUED):
        return 0
    return max(0, work.prompts - moving_groups(step, work))


def drawn(step: OpenStep) -> int:
    """Training groups of the step so far: it uses up as many prompts."""
    return sum(group.purpose == "train" for group in step.plan.groups)
