"""The report of a committed step, from its samples and what its time was used for (pure)."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal, cast

import msgspec
import numpy as np

from ebbtide.reports import (
    ActorTimeline,
    Cause,
    CostEntry,
    CostReport,
    DecisionReport,
    EvalStats,
    GroupCounts,
    Interval,
    LearnerReport,
    MigrationReport,
    ObjectiveReport,
    PhaseSeconds,
    PrefillCounts,
    RewardStats,
    SampleCounts,
    SamplingReport,
    StepReport,
    TokenCounts,
)
from ebbtide.wire import Accepted, BatchManifest, Learned, PolicyRef, Spent, Value
from services.planner.core.config import Economy
from services.planner.core.cost import Pod, Stretch
from services.planner.core.evaluation import EvalResult, totals
from services.planner.core.samples import ABANDONED, INVALID, VALUED, OpenStep
from services.planner.core.slicing import slices


class Marks(msgspec.Struct):
    """When the step's phases began, on the planner's clock; `wall` is Unix time at opening."""

    committed: float
    opened: float = 0.0
    handed_out: float = 0.0
    decoded: float = 0.0
    closed: float = 0.0

    def seconds(self, end: float) -> PhaseSeconds:
        """Length of each phase; a phase that did not happen has none."""
        opened = self.opened or end
        handed_out = self.handed_out or self.decoded or self.closed or end
        decoded = self.decoded or self.closed or end
        closed = self.closed or end
        return PhaseSeconds(
            plan=max(0.0, opened - self.committed),
            sync=max(0.0, handed_out - opened),
            decode=max(0.0, decoded - handed_out),
            score=max(0.0, closed - decoded),
            learn=max(0.0, end - closed),
        )


class Update(msgspec.Struct, frozen=True):
    """What the learner made of the step."""

    manifest: BatchManifest
    learned: Learned


class Ending(msgspec.Struct, frozen=True):
    """All that a report is drawn from. `now` is the moment of the commit."""

    step: OpenStep
    attempt: int
    epoch: int
    policy: PolicyRef
    marks: Marks
    now: float
    stretches: dict[Pod, list[Stretch]]
    spent: Sequence[Spent]
    evaluation: EvalResult | None
    update: Update | None
    economy: Economy
    job_uid: str
    prefill: PrefillCounts
    counted: Mapping[str, Mapping[str, float]]
    threshold: float
    decision: DecisionReport | None = None
    migration: MigrationReport | None = None


def report(ending: Ending) -> StepReport:
    """The whole report; `started_at` is left to whoever knows the time of day."""
    step, plan = ending.step, ending.step.plan
    seconds = ending.now - ending.marks.committed
    cost = _cost(ending.spent, ending.economy)
    return StepReport(
        job_uid=ending.job_uid,
        step=plan.step,
        attempt=ending.attempt,
        epoch=ending.epoch,
        kind=_kind(ending),
        policy=plan.policy.n,
        policy_digest=plan.policy.digest,
        next_policy=ending.policy.n,
        next_policy_digest=ending.policy.digest,
        seconds=seconds,
        phases=ending.marks.seconds(ending.now),
        samples=_samples(step),
        groups=_groups(step, ending.update),
        rewards=_rewards(step, ending.threshold),
        sampling=_sampling(step),
        evaluation=_evaluation(ending.evaluation),
        tokens=_tokens(step),
        prefill=ending.prefill,
        counted={name: dict(labels) for name, labels in ending.counted.items()},
        actors=_actors(ending),
        learner=_learner(ending.update),
        cost=cost,
        objective=_objective(cost, seconds, ending.economy),
        decision=ending.decision,
        migration=ending.migration,
        slices=slices(step, threshold=ending.threshold),
    )


def _kind(ending: Ending) -> Literal["train", "rollout", "eval", "sft"]:
    if not ending.step.plan.groups:
        return "sft"
    if ending.update:
        return "train"
    trains = any(group.purpose == "train" for group in ending.step.plan.groups)
    return "rollout" if trains else "eval"


def _samples(step: OpenStep) -> SampleCounts:
    return SampleCounts(
        expected=step.size,
        accepted=sum(found is not None for found in step.rollouts),
        valued=step.states.count(VALUED),
        invalid=step.states.count(INVALID),
        abandoned=step.states.count(ABANDONED),
        **step.counts,
    )


def _groups(step: OpenStep, update: Update | None) -> GroupCounts:
    train = [g for g, plan in enumerate(step.plan.groups) if plan.purpose == "train"]
    found = [(totals(step, g), step.plan.groups[g].size) for g in train]
    valued = [values for values, size in found if len(values) >= min(2, size)]
    flat = sum(len(values) > 1 and min(values) == max(values) for values in valued)
    return GroupCounts(
        expected=len(train),
        trained=len(valued),
        zero_variance=flat,
        refilled=len(step.plan.groups) - step.first_groups,
        refills=step.refills,
        dropped_tokens=_dropped_tokens(step, update),
    )


def _dropped_tokens(step: OpenStep, update: Update | None) -> int:
    """Response tokens that were sampled for groups that left the batch."""
    samples = [step.find(key) for key in update.manifest.dropped] if update else []
    found = [step.rollouts[sample] for sample in samples if sample is not None]
    return sum(rollout.n_tokens for rollout in found if rollout is not None)


def _train_values(step: OpenStep) -> list[Value]:
    values = []
    for sample, scored in enumerate(step.scores):
        if scored and isinstance(scored.score, Value) and step.group(sample).purpose == "train":
            values.append(scored.score)
    return values


def _rewards(step: OpenStep, threshold: float) -> RewardStats | None:
    values = _train_values(step)
    if not values:
        return None
    array = np.asarray([value.total for value in values])
    parts: dict[str, list[float]] = defaultdict(list)
    faults: dict[str, int] = defaultdict(int)
    for value in values:
        for part in value.parts:
            parts[part.name].append(part.value)
        if value.fault:
            faults[value.fault] += 1
    return RewardStats(
        mean=float(array.mean()),
        std=float(array.std()),
        minimum=float(array.min()),
        maximum=float(array.max()),
        pass_rate=float((array >= threshold).mean()),
        components={name: _mean(found) for name, found in parts.items()},
        faults=dict(faults),
        timed_out=faults.get("timeout", 0) / len(values),
    )


def _sampling(step: OpenStep) -> SamplingReport | None:
    plan = step.plan
    ages = [
        max(0, plan.policy.n - found.policy.n)
        for sample, found in enumerate(step.rollouts)
        if found is not None and step.group(sample).purpose == "train"
    ]
    if not ages:
        return None
    first = next(group for group in plan.groups if group.purpose == "train")
    return SamplingReport(
        temperature=first.temperature,
        max_new_tokens=first.max_new_tokens,
        group_size=first.size,
        age=sum(ages) / len(ages),
        oldest=max(ages),
    )


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return sum(finite) / len(finite) if finite else 0.0


def _evaluation(result: EvalResult | None) -> EvalStats | None:
    if result is None:
        return None
    return EvalStats(
        mean=result.mean,
        pass_at_k=result.pass_at_k,
        k=result.k,
        prompts=result.prompts,
        samples=result.samples,
    )


def _tokens(step: OpenStep) -> TokenCounts:
    prompt = sum(group.prompt_tokens for group in step.plan.groups)
    rollouts = _rollouts(step)
    if not rollouts:
        return TokenCounts(prompt=prompt, wasted=step.wasted_tokens)
    lengths = np.asarray([found.n_tokens for found in rollouts])
    p50, p90 = np.percentile(lengths, [50, 90])
    return TokenCounts(
        prompt=prompt,
        response=int(lengths.sum()),
        mean=float(lengths.mean()),
        p50=float(p50),
        p90=float(p90),
        longest=int(lengths.max()),
        truncated=sum(found.finish == "length" for found in rollouts),
        wasted=step.wasted_tokens,
    )


def _rollouts(step: OpenStep) -> list[Accepted]:
    return [found for found in step.rollouts if found is not None]


def _actors(ending: Ending) -> tuple[ActorTimeline, ...]:
    samples: dict[str, list[int]] = defaultdict(list)
    for sample, found in enumerate(ending.step.rollouts):
        if found is not None:
            samples[ending.step.actors[sample]].append(found.n_tokens)
    names = {pod for role, pod in ending.stretches if role == "decode"} | samples.keys()
    return tuple(
        ActorTimeline(
            name=name,
            samples=len(samples[name]),
            tokens=sum(samples[name]),
            intervals=_intervals(ending, name),
        )
        for name in sorted(name for name in names if name)
    )


def _intervals(ending: Ending, name: str) -> tuple[Interval, ...]:
    zero = ending.marks.opened
    clipped = [
        (stretch.cause, max(0.0, stretch.start - zero), max(0.0, stretch.end - zero))
        for stretch in ending.stretches.get(("decode", name), [])
    ]
    return tuple(Interval(cause=c, start=a, end=b) for c, a, b in clipped if b > a)


def _learner(update: Update | None) -> LearnerReport | None:
    if update is None:
        return None
    stats = {stat.name: stat.value for stat in update.learned.stats}
    return LearnerReport(
        seconds=update.learned.seconds,
        tokens=update.manifest.tokens,
        sequences=update.manifest.sequences,
        computed=sum(row.rank >= 0 for row in update.manifest.rows),
        stats={name: value for name, value in stats.items() if math.isfinite(value)},
    )


def _cost(spent: Sequence[Spent], economy: Economy) -> CostReport:
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for one in spent:
        seconds[one.role, one.cause] += one.seconds
    entries = tuple(
        CostEntry(role=r, cause=cast("Cause", c), seconds=s, cost=economy.of(r, c, s))
        for (r, c), s in sorted(seconds.items())
    )
    costs = [entry.cost for entry in entries]
    known = [cost for cost in costs if cost is not None]
    total = sum(known) if len(known) == len(costs) else None
    return CostReport(currency=economy.currency, total=total, entries=entries)


def _objective(cost: CostReport, seconds: float, economy: Economy) -> ObjectiveReport:
    known = economy.objective == "value-of-time" and cost.total is not None
    value = (cost.total or 0.0) + economy.hour_worth * seconds / 3600 if known else None
    return ObjectiveReport(type=economy.objective, value=value)
