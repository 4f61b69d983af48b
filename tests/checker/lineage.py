"""Replay a job's ledger down to what counts: a new attempt forgets what its manifest lacks.

The checker's own reading of protocol.md 2 and 9, shared with no service (pure).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import msgspec

from ebbtide.turns import stem
from ebbtide.wire import (
    Abandoned,
    Accepted,
    Adopted,
    Committed,
    Continued,
    Dispatch,
    Dispatched,
    Epoch,
    Extended,
    Frozen,
    GroupPlan,
    Manifest,
    Record,
    Ref,
    SampleKey,
    Scored,
    StepOpened,
    StepPlan,
)

ReadManifest = Callable[[Ref], Manifest]


def expected(plan: StepPlan, job_uid: str) -> list[SampleKey]:
    """The keys that a plan promised: group sizes say how many samples must come back."""
    return [
        SampleKey(job_uid, plan.step, group.group, index)
        for group in plan.groups
        for index in range(group.size)
    ]


@dataclass
class Lineage:
    """What the present attempt and its ancestors hold. `faults`: breaches of order.

    Samples are named by their first turn. `turns`: the present one; `accepted`: its rollouts;
    `passed`: what was accepted of turns before it, each with what the next one begins from.
    """

    attempt: int = 0
    epoch: int = 0
    plans: dict[int, StepPlan] = field(default_factory=dict)
    current: dict[SampleKey, Dispatch] = field(default_factory=dict)
    handed_out: dict[SampleKey, int] = field(default_factory=lambda: defaultdict(int))
    accepted: dict[SampleKey, list[Accepted]] = field(default_factory=lambda: defaultdict(list))
    scored: dict[SampleKey, Scored] = field(default_factory=dict)
    abandoned: dict[SampleKey, Abandoned] = field(default_factory=dict)
    turns: dict[SampleKey, int] = field(default_factory=lambda: defaultdict(int))
    passed: dict[SampleKey, list[tuple[Accepted, Continued]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    frozen: dict[int, Ref] = field(default_factory=dict)
    committed: dict[int, Committed] = field(default_factory=dict)
    ever: dict[str, Accepted] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def forget_from(self, step: int) -> None:
        """Roll back to the state before `step` was opened; `ever` alone remembers."""
        for by_step in (self.plans, self.frozen, self.committed):
            for late in [s for s in by_step if s >= step]:
                del by_step[late]
        samples = (self.accepted, self.scored, self.abandoned, self.turns, self.passed)
        for by_key in (self.current, *samples):
            for key in [k for k in by_key if k.step_issued >= step]:
                del by_key[key]


def replay(records: Iterable[Record], read_manifest: ReadManifest) -> Lineage:
    """Apply every record of the chain in order."""
    lineage = Lineage()
    for record in records:
        _apply(lineage, record, read_manifest)
    return lineage


def _apply(lineage: Lineage, record: Record, read_manifest: ReadManifest) -> None:
    match record:
        case Epoch():
            _epoch(lineage, record, read_manifest)
        case StepOpened() | Extended() | Frozen() | Committed():
            _planned(lineage, record)
        case Dispatched(key, dispatch):
            _expect_turn(lineage, record.key, "handed out")
            lineage.current[stem(key)] = dispatch
            lineage.handed_out[key] += 1
        case Accepted():
            _accepted(lineage, record)
        case Continued():
            _continued(lineage, record)
        case Adopted():
            _adopted(lineage, record)
        case Scored(key):
            _scored(lineage, record)
        case Abandoned(key):
            lineage.abandoned[stem(key)] = record


def _epoch(lineage: Lineage, record: Epoch, read_manifest: ReadManifest) -> None:
    if record.n <= lineage.epoch:
        lineage.faults.append(f"epoch {record.n} follows epoch {lineage.epoch}")
    if record.attempt < lineage.attempt:
        lineage.faults.append(f"attempt {record.attempt} follows attempt {lineage.attempt}")
    if record.attempt > lineage.attempt:
        lineage.forget_from(read_manifest(record.parent).step if record.parent else 0)
    lineage.epoch, lineage.attempt = record.n, record.attempt


def _planned(lineage: Lineage, record: StepOpened | Extended | Frozen | Committed) -> None:
    match record:
        case StepOpened(plan):
            _opened(lineage, plan)
        case Extended(step, groups):
            _extended(lineage, step, groups)
        case Frozen(step, manifest):
            lineage.frozen[step] = manifest
        case Committed(step):
            lineage.committed[step] = record


def _opened(lineage: Lineage, plan: StepPlan) -> None:
    if plan.step in lineage.plans:
        lineage.faults.append(f"step {plan.step} opened twice")
    lineage.plans[plan.step] = plan


def _extended(lineage: Lineage, step: int, groups: tuple[GroupPlan, ...]) -> None:
    plan = lineage.plans.get(step)
    if plan is None or step in lineage.frozen or step in lineage.committed:
        lineage.faults.append(f"step {step} got more groups, but is not open")
        return
    numbers = [group.group for group in (*plan.groups, *groups)]
    if numbers != list(range(len(numbers))):
        lineage.faults.append(f"groups of step {step} are numbered {numbers}")
    lineage.plans[step] = msgspec.structs.replace(plan, groups=(*plan.groups, *groups))


def _accepted(lineage: Lineage, record: Accepted) -> None:
    if lineage.current.get(stem(record.key)) != record.dispatch:
        lineage.faults.append(f"{record.key} accepted from a dispatch that was not current")
    _expect_turn(lineage, record.key, "accepted")
    lineage.accepted[stem(record.key)].append(record)
    lineage.ever[record.ref.path] = record


def _continued(lineage: Lineage, record: Continued) -> None:
    """The environment replied to the one accepted rollout of the turn."""
    name = stem(record.key)
    found = lineage.accepted.pop(name, [])
    if len(found) != 1 or found[0].key != record.key or name in lineage.scored:
        lineage.faults.append(f"{record.key} goes on, and is not one accepted turn")
    lineage.passed[name] += [(one, record) for one in found]
    lineage.turns[name] = record.key.turn + 1
    lineage.current.pop(name, None)


def _expect_turn(lineage: Lineage, key: SampleKey, what: str) -> None:
    if lineage.turns[stem(key)] != key.turn:
        lineage.faults.append(f"{key} {what} in turn {lineage.turns[stem(key)]}")


def _adopted(lineage: Lineage, record: Adopted) -> None:
    source = lineage.ever.get(record.ref.path)
    if source is None or source.key != record.key:
        lineage.faults.append(f"{record.key} adopted, but was never accepted")
        return
    lineage.turns[stem(record.key)] = record.key.turn
    lineage.accepted[stem(record.key)].append(source)


def _scored(lineage: Lineage, record: Scored) -> None:
    name = stem(record.key)
    if name in lineage.scored:
        lineage.faults.append(f"{record.key} scored twice")
    if record.key not in [one.key for one in lineage.accepted.get(name, [])]:
        lineage.faults.append(f"{record.key} scored before it was accepted")
    lineage.scored[name] = record
