"""What a step sets out to do: which prompts, in which groups (pure)."""

from __future__ import annotations

import msgspec

from ebbtide.data.chunks import row_ref
from ebbtide.data.order import DataOrder
from ebbtide.wire import GroupPlan, PolicyRef, PromptRef, StepPlan, digest, encode
from services.planner.core.config import Data, Grpo, JobConfig
from services.planner.core.effects import LoadPrompts
from services.planner.core.events import PromptsLoaded
from services.planner.core.refilling import drawn
from services.planner.core.samples import OpenStep


class Prompts:
    """Knows which rows a step takes, and holds those that were read ahead."""

    def __init__(self, *, config: JobConfig, data: Data) -> None:
        self._config, self._data = config, data
        self._order = DataOrder(n_rows=data.train.n_rows, seed=config.seed, shuffle=config.shuffle)
        self._asked: dict[int, LoadPrompts] = {}
        self._loaded: dict[int, PromptsLoaded] = {}

    def request(self, step: int, cursor: int) -> LoadPrompts | None:
        """What must be read for `step`, unless that was asked for already."""
        if step in self._asked or step > self._config.last_step:
            return None
        self._asked[step] = LoadPrompts(step, self._train(step, cursor), self._eval(step))
        return self._asked[step]

    def again(self, step: int) -> None:
        """Forget that `step` was asked for: the answer did not come."""
        if step not in self._loaded:
            self._asked.pop(step, None)

    def loaded(self, event: PromptsLoaded) -> None:
        """The answer to `request`."""
        asked = self._asked.get(event.step)
        if asked is not None and asked.turn == event.turn:
            self._loaded[event.step] = event

    def ready(self, step: int) -> bool:
        """Whether `take(step, ...)` can be called."""
        return step in self._loaded

    def take(self, step: int, policy: PolicyRef, cursor: int) -> StepPlan:
        """The plan of `step`; its prompts are not held any longer."""
        asked, loaded = self._asked.pop(step), self._loaded.pop(step)
        work = self._config.work
        assert isinstance(work, Grpo)
        groups = (*_train_groups(work, asked, loaded), *_eval_groups(work, asked, loaded))
        return StepPlan(
            step, policy, groups, work.replicas, cursor, data_digests(self._config, self._data)
        )

    def request_more(self, step: OpenStep, count: int) -> LoadPrompts | None:
        """What must be read for `count` more groups of the open step, unless that was asked for."""
        number = step.plan.step
        if number in self._asked:
            return None
        rows = self._order.take(step.plan.data_cursor + drawn(step), count)
        refs = tuple(row_ref(self._data.train, row) for row in rows)
        self._asked[number] = LoadPrompts(number, refs, (), step.refills + 1)
        return self._asked[number]

    def take_more(self, step: OpenStep) -> tuple[GroupPlan, ...]:
        """The groups that `request_more` asked for; their numbers follow those of the plan."""
        asked, loaded = self._asked.pop(step.plan.step), self._loaded.pop(step.plan.step)
        work = self._config.work
        assert isinstance(work, Grpo)
        return tuple(_train_groups(work, asked, loaded, first=len(step.plan.groups)))

    def _train(self, step: int, cursor: int) -> tuple[PromptRef, ...]:
        work = self._config.work
        if not isinstance(work, Grpo) or step >= self._config.total_steps:
            return ()
        rows = self._order.take(cursor, work.prompts)
        return tuple(row_ref(self._data.train, row) for row in rows)

    def _eval(self, step: int) -> tuple[PromptRef, ...]:
        work, index = self._config.work, self._data.eval
        if not self._config.evaluates(step) or index is None:
            return ()
        assert isinstance(work, Grpo)
        assert work.evaluation is not None
        return tuple(row_ref(index, row) for row in range(work.evaluation.prompts))


def sft_plan(config: JobConfig, data: Data, step: int, policy: PolicyRef, cursor: int) -> StepPlan:
    """A step on given rows or recorded batches has no groups: the learner reads them itself."""
    return StepPlan(step, policy, (), 0, cursor, data_digests(config, data))


def data_digests(config: JobConfig, data: Data) -> tuple[tuple[str, str], ...]:
    """Digests of what shapes the data of a step beside its policy."""
    evaluation = (("eval_dataset", data.eval.digest),) if data.eval else ()
    return (
        ("dataset", data.train.digest),
        *evaluation,
        ("tokenizer", data.train.tokenizer_digest),
        ("template", data.train.template_digest),
        ("sampling", digest(encode((config.work, data.train.stop_ids, config.seed)))),
    )


def with_reference(plan: StepPlan, reference: str) -> StepPlan:
    """With the digest of the weights that the step's update is held near, if there are any."""
    more = (("reference", reference),) if reference else ()
    return msgspec.structs.replace(plan, digests=(*plan.digests, *more))


def _train_groups(
    work: Grpo, asked: LoadPrompts, loaded: PromptsLoaded, *, first: int = 0
) -> list[GroupPlan]:
    return [
        GroupPlan(
            group=n,
            prompt_id=prompt.prompt_id,
            prompt_ref=ref,
            size=work.group_size,
            purpose="train",
            temperature=work.temperature,
            max_new_tokens=work.max_new_tokens,
            prompt_tokens=prompt.n_tokens,
            task=prompt.task,
            turns=work.turns,
        )
        for n, (ref, prompt) in enumerate(zip(asked.train, loaded.train, strict=True), start=first)
    ]


def _eval_groups(work: Grpo, asked: LoadPrompts, loaded: PromptsLoaded) -> list[GroupPlan]:
    if work.evaluation is None:
        return []
    first = len(asked.train)
    return [
        GroupPlan(
            group=n,
            prompt_id=prompt.prompt_id,
            prompt_ref=ref,
            size=work.evaluation.samples,
            purpose="eval",
            temperature=work.evaluation.temperature,
            max_new_tokens=work.max_new_tokens,
            prompt_tokens=prompt.n_tokens,
            task=prompt.task,
            turns=work.turns,
        )
        for n, (ref, prompt) in enumerate(zip(asked.eval, loaded.eval, strict=True), start=first)
    ]
