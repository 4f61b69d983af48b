"""What the ledger says, folded into what the planner must know to go on (pure).

Live and replayed records take the same way through `apply`, so a planner that starts anew knows
exactly what its predecessor made durable.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import msgspec

from ebbtide import paths
from ebbtide.turns import stem
from ebbtide.wire import (
    Abandoned,
    Accepted,
    Adopted,
    Aged,
    Checkpointed,
    Committed,
    Continued,
    Decided,
    Dispatched,
    Epoch,
    Extended,
    Frozen,
    GroupPlan,
    PolicyRef,
    Record,
    Ref,
    SampleKey,
    Scored,
    Spent,
    StepOpened,
)
from services.planner.core.evaluation import EvalResult, evaluate
from services.planner.core.lengths import Lengths
from services.planner.core.samples import OpenStep, code_of


class Kept(msgspec.Struct, frozen=True):
    """A checkpoint of the lineage, with all that the planner restores from it."""

    step: int
    ref: Ref
    policy: PolicyRef
    index: Ref
    cursor: int


class Orphan(msgspec.Struct, frozen=True):
    """A rollout that an earlier attempt accepted for the step that is to be opened again."""

    group: GroupPlan
    accepted: Accepted
    scored: Scored | None


class PlannerState(msgspec.Struct, frozen=True):
    """The planner's part of a checkpoint, for whoever reads that without the ledger.

    A planner restores from the ledger alone, which has all this and more.
    """

    step: int
    data_cursor: int
    evals: tuple[EvalResult, ...]


class Book:
    """The fold. `next_step` is the first step that is not committed.

    `policy` and `index`: what `next_step` samples from, None until a step has told.
    `restored`: this attempt began from a checkpoint and has opened no step yet.
    `parents`: paths of all manifests that attempts began from: they are kept, for the lineage.
    `initial` and `reference`: digest of the job's first policy, and of the weights that updates are
    held near, as the first attempt's first steps had them; empty: none.
    `begins`: this epoch is the first of its attempt.
    `settled`: codes of the hand-outs that the last committed step accepted, or, in a new attempt,
    the earlier ones for the step that is to be opened again.
    `lengths`: what the answers so far say about those to come.
    """

    def __init__(
        self,
        *,
        job_uid: str,
        rows_per_step: int = 0,
        threshold: float = 1.0,
        lengths: Lengths | None = None,
    ) -> None:
        self.epoch = 0
        self.attempt = 0
        self.begins = False
        self.parent: Ref | None = None
        self.parents: set[str] = set()
        self.next_step = 0
        self.cursor = 0
        self.policy: PolicyRef | None = None
        self.index: Ref | None = None
        self.initial = ""
        self.reference = ""
        self.restored = False
        self.open: OpenStep | None = None
        self.frozen: Ref | None = None
        self.settled: AbstractSet[int] = frozenset()
        self.orphans: dict[SampleKey, Orphan] = {}
        self.checkpoints: list[Kept] = []
        self.evals: list[EvalResult] = []
        self.spent: dict[tuple[str, str], float] = {}
        self.lengths = lengths or Lengths()
        self._job_uid = job_uid
        self._rows_per_step = rows_per_step
        self.threshold = threshold
        self._apply = {
            Epoch: self._epoch,
            StepOpened: self._opened,
            Extended: self._extended,
            Decided: self._decided,
            Aged: self._aged,
            Dispatched: self._dispatched,
            Accepted: self._accepted,
            Continued: self._continued,
            Adopted: self._adopted,
            Scored: self._scored,
            Abandoned: self._abandoned,
            Frozen: self._frozen,
            Committed: self._committed,
            Checkpointed: self._checkpointed,
            Spent: self._spent,
        }

    def apply(self, record: Record) -> None:
        """Take in one record; the ledger holds them in this order."""
        self._apply[type(record)](record)  # type: ignore[operator]

    def newest_checkpoint(self) -> Ref | None:
        """What a new attempt begins from."""
        return max(self.checkpoints, key=lambda kept: kept.step).ref if self.checkpoints else None

    def has_accepted(self, code: int) -> bool:
        """Whether hand-out `code`, of no sample's present turn, was accepted."""
        return code in self.settled or (self.open is not None and code in self.open.passed)

    def has_checkpoint(self, step: int) -> bool:
        """Whether the state after `step` updates is saved."""
        return any(kept.step == step for kept in self.checkpoints)

    # --- one method per kind of record --------------------------------------------------------

    def _epoch(self, record: Epoch) -> None:
        self.begins = record.attempt > self.attempt
        if record.attempt > self.attempt > 0:
            self._restore(record.parent)
        self.epoch, self.attempt, self.parent = record.n, record.attempt, record.parent
        self.parents |= {record.parent.path} if record.parent else set()

    def _restore(self, parent: Ref | None) -> None:
        step = paths.step_of(parent.path) if parent else 0
        passed = self.open.passed if self.open and self.open.plan.step == step else set()
        self.orphans = self._orphans(step)
        kept = next((kept for kept in self.checkpoints if kept.step == step), None)
        assert kept or not step, f"{parent} is not in the ledger"
        self.policy, self.index = (kept.policy, kept.index) if kept else (None, None)
        self.cursor = kept.cursor if kept else 0
        self.next_step = step
        self.restored = step > 0
        self.open, self.frozen = None, None
        adoptable = (code_of(o.accepted.dispatch) for o in self.orphans.values())
        self.settled = frozenset((*adoptable, *passed))
        self.evals = [found for found in self.evals if found.step < step]
        self.checkpoints = [kept for kept in self.checkpoints if kept.step <= step]

    def _orphans(self, step: int) -> dict[SampleKey, Orphan]:
        """What earlier attempts accepted for `step`, if that was the step they had open."""
        old = {key: orphan for key, orphan in self.orphans.items() if key.step_issued == step}
        if self.open is None or self.open.plan.step != step:
            return old
        return old | dict(_accepted_in(self.open))

    def _opened(self, record: StepOpened) -> None:
        assert self.open is None, "a step is opened after the one before was committed"
        assert record.plan.step == self.next_step
        self.open = OpenStep(record.plan, self._job_uid)
        self.restored = False
        self.policy = record.plan.policy
        self.initial = self.initial or record.plan.policy.digest
        self.reference = self.reference or dict(record.plan.digests).get("reference", "")
        self.cursor = record.plan.data_cursor
        self.lengths.opened(record.plan)

    def _extended(self, record: Extended) -> None:
        step = self.open
        assert step is not None, "an open step gets more groups"
        assert record.step == step.plan.step
        step.extended(record.groups)
        self.lengths.extended(record.groups)

    def _decided(self, record: Decided) -> None:
        step = self.open
        assert step is not None, "an open step is laid out"
        assert record.step == step.plan.step
        step.decided = record

    def _aged(self, record: Aged) -> None:
        step = self.open
        assert step is not None, "an open step ages"
        assert record.step == step.plan.step
        step.age = record.seconds

    def _dispatched(self, record: Dispatched) -> None:
        step, sample = self._locate(record.key)
        step.dispatched(sample, record)

    def _accepted(self, record: Accepted) -> None:
        step, sample = self._locate(record.key)
        step.accepted(sample, record)
        if not step.may_go_on(sample):
            self.lengths.ended(step, sample, record)

    def _continued(self, record: Continued) -> None:
        step, sample = self._locate(record.key)
        step.continued(sample, record)

    def _adopted(self, record: Adopted) -> None:
        step, sample = self._locate(record.key)
        step.adopted(sample, self.orphans.pop(stem(record.key)).accepted)

    def _scored(self, record: Scored) -> None:
        step, sample = self._locate(record.key)
        accepted = step.rollouts[sample] if step.may_go_on(sample) else None
        step.scored(sample, record)
        if accepted is not None:  # an episode that its environment ended
            self.lengths.ended(step, sample, accepted)

    def _abandoned(self, record: Abandoned) -> None:
        step, sample = self._locate(record.key)
        step.abandoned(sample)

    def _frozen(self, record: Frozen) -> None:
        self.frozen = record.manifest

    def _committed(self, record: Committed) -> None:
        step = self.open
        assert step is not None, "a step is opened before it is committed"
        assert record.step == step.plan.step
        result = evaluate(step, self.threshold)
        self.evals += [result] if result else []
        last = zip(step.codes, step.rollouts, strict=True)
        self.settled = step.passed.union(code for code, got in last if got is not None)
        train = sum(group.purpose == "train" for group in step.plan.groups)
        self.cursor += train if step.plan.groups else self._rows_per_step
        self.policy, self.index = record.policy, record.index
        self.next_step = record.step + 1
        self.open, self.frozen, self.orphans = None, None, {}

    def _checkpointed(self, record: Checkpointed) -> None:
        assert record.step == self.next_step or record.step == self.next_step - 1
        assert self.policy is not None
        assert self.index is not None
        kept = Kept(record.step, record.manifest, self.policy, self.index, self.cursor)
        others = [kept for kept in self.checkpoints if kept.step != record.step]
        self.checkpoints = [*others, kept]

    def _spent(self, record: Spent) -> None:
        place = (record.role, record.cause)
        self.spent[place] = self.spent.get(place, 0.0) + record.seconds

    def _locate(self, key: SampleKey) -> tuple[OpenStep, int]:
        step = self.open
        assert step is not None, "samples belong to an open step"
        sample = step.find(key)
        assert sample is not None, f"{key} is in no plan"
        return step, sample


def _accepted_in(step: OpenStep) -> list[tuple[SampleKey, Orphan]]:
    """By the name of the whole sample; of an episode whose next turn ran, the turn before it."""
    found = []
    for sample, last in enumerate(step.rollouts):
        accepted = last or step.before[sample]
        if accepted is not None:
            orphan = Orphan(step.group(sample), accepted, step.scores[sample])
            found.append((stem(accepted.key), orphan))
    return found
