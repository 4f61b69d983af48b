"""What the gateway remembers of a ledger: where things are, and sums; never the samples.

Fed segment by segment, so a ledger of any length costs one pass and a few bytes per segment.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import msgspec

from ebbtide.turns import stem
from ebbtide.wire import (
    Abandoned,
    Accepted,
    Adopted,
    Checkpointed,
    Continued,
    Dispatched,
    Extended,
    Frozen,
    GroupPlan,
    Record,
    Ref,
    SampleKey,
    Scored,
    Spent,
    StepOpened,
    StepPlan,
)


class History:
    """An index of one job's ledger."""

    def __init__(self) -> None:
        self.next_slot = 0
        self.steps: defaultdict[int, set[int]] = defaultdict(set)
        """Slots that say something about the samples of a step."""
        self.spent: defaultdict[tuple[str, str, str], float] = defaultdict(float)
        """Seconds by (role, actor, cause)."""
        self.spent_in: defaultdict[int, set[int]] = defaultdict(set)
        """Slots that say what the time of a step was used for."""
        self.frozen: dict[int, Ref] = {}
        """Batch manifest of each step, the last attempt's."""
        self.checkpoints: dict[str, Ref] = {}
        """Manifests by path, oldest first."""

    def add(self, slot: int, records: Iterable[Record]) -> None:
        """Take the records of the next slot."""
        assert slot == self.next_slot, "segments come in order"
        for record in records:
            self._take(record, slot)
        self.next_slot += 1

    def _take(self, record: Record, slot: int) -> None:
        step = step_of(record)
        if step is not None:
            self.steps[step].add(slot)
        match record:
            case Spent():
                self.spent[record.role, record.pod, record.cause] += record.seconds
                self.spent_in[record.step].add(slot)
            case Frozen():
                self.frozen[record.step] = record.manifest
            case Checkpointed():
                self.checkpoints[record.manifest.path] = record.manifest
            case _:
                pass


def step_of(record: Record) -> int | None:
    """The step whose samples a record speaks of."""
    match record:
        case StepOpened():
            return record.plan.step
        case Extended():
            return record.step
        case Dispatched() | Accepted() | Continued() | Adopted() | Scored() | Abandoned():
            return record.key.step_issued
        case _:
            return None


class StepView:
    """The samples of one step, from the records of its slots in order."""

    def __init__(self, step: int, records: Iterable[Record]) -> None:
        self.plan: StepPlan | None = None
        self.accepted: dict[SampleKey, Accepted] = {}
        self.scored: dict[SampleKey, Scored] = {}
        self.handed: defaultdict[SampleKey, list[Dispatched]] = defaultdict(list)
        """Hand-outs, in order; adopted samples have those of the attempt that drew them too."""
        self._ever: dict[SampleKey, Accepted] = {}
        self._moved: dict[SampleKey, Ref] = {}
        self._turns: dict[SampleKey, SampleKey] = {}
        for record in records:
            if step_of(record) == step:
                self._take(record)

    def _take(self, record: Record) -> None:
        match record:
            case StepOpened():
                self.plan = record.plan
            case Extended() if self.plan is not None:
                groups = (*self.plan.groups, *record.groups)
                self.plan = msgspec.structs.replace(self.plan, groups=groups)
            case Dispatched():
                self.handed[record.key].append(record)
            case Accepted():
                self._ever[record.key] = record
                self._count(record)
            case Continued():
                self._forget_turn(record.key)
            case Adopted():
                self._adopt(record)
            case Scored():
                self.scored[record.key] = record
            case _:
                pass

    def _count(self, record: Accepted) -> None:
        self._forget_turn(record.key)
        self.accepted[record.key] = record
        self._turns[stem(record.key)] = record.key

    def _adopt(self, record: Adopted) -> None:
        """The turn counts again, though an environment had replied to it."""
        if record.key in self._ever:
            self._count(self._ever[record.key])
        self._moved[record.key] = record.ref

    def _forget_turn(self, key: SampleKey) -> None:
        """Of an episode only the rollout of its last turn counts."""
        last = self._turns.pop(stem(key), key)
        self.accepted.pop(last, None)
        self._moved.pop(last, None)

    def present(self, key: SampleKey) -> SampleKey:
        """The turn that counts, where `key` is of the first: that names the episode."""
        return key if key.turn else self._turns.get(key, key)

    def ref(self, key: SampleKey) -> Ref:
        """The rollout that counts for `key`."""
        return self._moved.get(key) or self.accepted[key].ref

    def group(self, number: int) -> GroupPlan | None:
        """The plan of a group."""
        groups = self.plan.groups if self.plan else ()
        if number < len(groups) and groups[number].group == number:
            return groups[number]
        return next((g for g in groups if g.group == number), None)

    def purpose(self, group: int) -> str:
        """Train or eval."""
        plan = self.group(group)
        return plan.purpose if plan else "train"

    def keys(self, purpose: str | None) -> list[SampleKey]:
        """Accepted samples in key order, of one purpose or of all."""
        found = sorted(self.accepted)
        return [k for k in found if purpose is None or self.purpose(k.group) == purpose]
