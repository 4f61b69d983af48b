"""The checker must see each fault that is planted in an otherwise sound job."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec
import pytest

from ebbtide.wire import (
    Abandoned,
    Accepted,
    Adopted,
    BatchManifest,
    Committed,
    Dispatch,
    Dispatched,
    Epoch,
    Frozen,
    GroupPlan,
    Manifest,
    PolicyRef,
    PromptRef,
    Record,
    Ref,
    Rollout,
    Row,
    SampleKey,
    Scored,
    Span,
    StepOpened,
    StepPlan,
    Timings,
    Value,
    Wire,
    digest,
    encode,
    pack_floats,
    pack_ints,
    pack_mask,
)
from tests.checker.evidence import Evidence, Settled
from tests.checker.verdict import Verdict, examine

UID = "job-1"
SCORE = Value(total=1.0, parts=())


def policy(n: int) -> PolicyRef:
    return PolicyRef(n=n, attempt=1, digest=f"policy-{n}")


@dataclass
class Story:
    """A synthetic job: two steps of two groups of two samples, told record by record."""

    records: list[Record] = field(default_factory=list)
    settled: list[Settled] = field(default_factory=list)
    blobs: dict[str, bytes] = field(default_factory=dict)
    seq: int = 0

    def put(self, path: str, message: Wire) -> Ref:
        data = encode(message)
        self.blobs[path] = data
        return Ref(path, digest(data), len(data))

    def open(self, step: int) -> None:
        prompt = PromptRef(Ref("chunk", "d", 1), 0)
        groups = tuple(GroupPlan(g, f"prompt-{g}", prompt, 2, "train", 1.0, 8) for g in range(2))
        self.records.append(StepOpened(StepPlan(step, policy(step), groups, 1, 2 * step)))

    def hand_out(self, key: SampleKey) -> Dispatch:
        dispatch = Dispatch(1, 1, self.seq)
        self.seq += 1
        self.records.append(Dispatched(key, dispatch, "actor-0", policy(key.step_issued)))
        return dispatch

    def roll_out(self, key: SampleKey, dispatch: Dispatch, drawn: PolicyRef) -> Ref:
        tokens, spans = pack_ints([5, 6, 7]), (Span(0, 2, drawn), Span(2, 3, drawn))
        rollout = Rollout(
            key, dispatch, "prompt", b"", tokens, pack_floats([0, 0, 0]), pack_mask([1, 1, 1]),
            spans, "stop", Timings(0, 0, 0), "actor-0",
        )  # fmt: skip
        return self.put(
            f"rollout-{key.step_issued}-{key.group}-{key.index}-{dispatch.seq}", rollout
        )

    def accept(self, key: SampleKey, dispatch: Dispatch, ref: Ref) -> None:
        self.records.append(Accepted(key, dispatch, ref, policy(key.step_issued), 3, "stop"))
        hand = (dispatch.attempt, dispatch.planner_epoch, dispatch.seq)
        line = (key.job_uid, key.step_issued, key.group, key.index, key.turn)
        self.settled.append(Settled(line, hand, "accepted", ref.path, ref.digest))

    def sample(self, key: SampleKey) -> Ref:
        dispatch = self.hand_out(key)
        ref = self.roll_out(key, dispatch, policy(key.step_issued))
        self.accept(key, dispatch, ref)
        self.records.append(Scored(key, SCORE, "scorer"))
        return ref

    def close(self, step: int, refs: dict[SampleKey, Ref]) -> None:
        rows = tuple(Row(key, ref, 3, 0.0, 0, 0) for key, ref in sorted(refs.items()))
        batch = BatchManifest(UID, 1, step, policy(step), rows, 12, 4, 1, 1)
        ref = self.put(f"batch-{step}-{len(self.records)}", batch)
        self.records.append(Frozen(step, ref))
        self.records.append(Committed(step, policy(step + 1), ref))

    def step(self, step: int) -> None:
        self.open(step)
        self.close(step, {key: self.sample(key) for key in keys(step)})

    def verdict(self, *, complete: bool = True) -> Verdict:
        evidence = Evidence(UID, self.records, self.settled, self.blobs)
        return examine(evidence, complete=complete)


def keys(step: int) -> list[SampleKey]:
    return [SampleKey(UID, step, g, i) for g in range(2) for i in range(2)]


def sound() -> Story:
    story = Story(records=[Epoch(1, 1, 0, None)])
    story.step(0)
    story.step(1)
    return story


def last(story: Story, kind: type[Record]) -> int:
    return max(i for i, record in enumerate(story.records) if isinstance(record, kind))


def test_a_sound_job_has_no_fault() -> None:
    verdict = sound().verdict()
    assert verdict.faults() == {}
    assert (verdict.expected, verdict.accepted, verdict.settled) == (8, 8, 8)


def lose_a_sample(story: Story) -> None:
    del story.records[last(story, Scored)]


def accept_twice(story: Story) -> None:
    story.records.insert(last(story, Accepted), story.records[last(story, Accepted)])


def accept_what_was_replaced(story: Story) -> None:
    at = last(story, Accepted)
    record = story.records[at]
    assert isinstance(record, Accepted)
    story.records.insert(at, Dispatched(record.key, Dispatch(1, 1, 99), "b", policy(1)))


def train_twice(story: Story) -> None:
    story.open(2)
    refs = {key: story.sample(key) for key in keys(2)}
    old = story.records[next(i for i, r in enumerate(story.records) if isinstance(r, Accepted))]
    assert isinstance(old, Accepted)
    story.close(2, refs | {old.key: old.ref})


def score_and_abandon(story: Story) -> None:
    story.records.append(Abandoned(keys(1)[0], "deadline"))


def settle_what_is_not_recorded(story: Story) -> None:
    line = story.settled[0]
    story.settled.append(msgspec.structs.replace(line, path="rollout-nobody-knows"))


def settle_other_bytes(story: Story) -> None:
    story.settled[0] = msgspec.structs.replace(story.settled[0], digest="other")


def train_what_was_not_accepted(story: Story) -> None:
    key = keys(1)[0]
    other = story.roll_out(key, Dispatch(1, 1, 77), policy(1))
    refs = {r.key: r.ref for r in story.records if isinstance(r, Accepted)}
    del story.records[last(story, Frozen) :]
    story.close(1, {k: ref for k, ref in refs.items() if k.step_issued == 1} | {key: other})


def leave_one_out_of_the_batch(story: Story) -> None:
    refs = {r.key: r.ref for r in story.records if isinstance(r, Accepted)}
    del story.records[last(story, Frozen) :]
    story.close(1, {key: refs[key] for key in keys(1)[:-1]})


def corrupt_a_rollout(story: Story) -> None:
    path = next(path for path in story.blobs if path.startswith("rollout"))
    story.blobs[path] += b"x"


def lose_a_batch(story: Story) -> None:
    del story.blobs[next(path for path in story.blobs if path.startswith("batch"))]


def draw_from_an_older_policy(story: Story) -> None:
    story.open(2)
    key = keys(2)[0]
    dispatch = story.hand_out(key)
    story.accept(key, dispatch, story.roll_out(key, dispatch, policy(1)))


def skip_a_policy(story: Story) -> None:
    at = last(story, Committed)
    story.records[at] = msgspec.structs.replace(story.records[at], policy=policy(9))
    story.step(2)


def answer_with_anothers_rollout(story: Story) -> None:
    story.open(2)
    dispatch = story.hand_out(keys(2)[0])
    story.accept(keys(2)[0], dispatch, story.roll_out(keys(2)[1], dispatch, policy(2)))


def accept_outside_any_plan(story: Story) -> None:
    story.sample(SampleKey(UID, 1, 7, 0))


def repeat_an_epoch(story: Story) -> None:
    story.records.append(Epoch(1, 1, 3, None))


def adopt_from_nowhere(story: Story) -> None:
    story.records.append(Adopted(keys(1)[0], 1, Ref("never", "d", 1)))


FAULTS: list[tuple[Callable[[Story], None], str]] = [
    (lose_a_sample, "lost"),
    (accept_twice, "doubled"),
    (train_twice, "doubled"),
    (score_and_abandon, "doubled"),
    (accept_what_was_replaced, "order"),
    (settle_what_is_not_recorded, "settled_unrecorded"),
    (settle_other_bytes, "settled_unrecorded"),
    (train_what_was_not_accepted, "batched_unaccepted"),
    (leave_one_out_of_the_batch, "missing_from_batch"),
    (corrupt_a_rollout, "unreadable"),
    (lose_a_batch, "unreadable"),
    (draw_from_an_older_policy, "wrong_policy"),
    (skip_a_policy, "wrong_policy"),
    (answer_with_anothers_rollout, "wrong_identity"),
    (accept_outside_any_plan, "unplanned"),
    (repeat_an_epoch, "order"),
    (adopt_from_nowhere, "order"),
]


@pytest.mark.parametrize(("plant", "name"), FAULTS, ids=lambda x: getattr(x, "__name__", x))
def test_a_planted_fault_is_named(plant: Callable[[Story], None], name: str) -> None:
    story = sound()
    plant(story)
    assert name in story.verdict().faults()


def test_an_open_step_of_a_running_job_has_lost_nothing() -> None:
    story = sound()
    story.open(2)
    assert story.verdict(complete=False).faults() == {}
    assert len(story.verdict().lost) == 4


def restart_from_step_1(story: Story) -> None:
    """A new attempt whose parent manifest was made before step 1."""
    parent = Manifest(UID, 1, None, 1, policy(1), Ref("i", "d", 1), (), Ref("p", "d", 1), 2, ())
    story.records.append(Epoch(2, 2, len(story.records), story.put("manifest", parent)))
    story.open(1)


def test_a_step_done_again_after_a_rollback_is_not_doubled() -> None:
    story = sound()
    restart_from_step_1(story)
    story.close(1, {key: story.sample(key) for key in keys(1)})
    assert story.verdict().faults() == {}


def test_a_rollout_adopted_after_a_rollback_counts_once() -> None:
    story = sound()
    mine = [r for r in story.records if isinstance(r, Accepted) and r.key.step_issued == 1]
    restart_from_step_1(story)
    for record in mine:
        story.records += [Adopted(record.key, 1, record.ref), Scored(record.key, SCORE, "s")]
    story.close(1, {record.key: record.ref for record in mine})
    assert story.verdict().faults() == {}


def test_a_sample_lost_in_a_rollback_is_named() -> None:
    story = sound()
    restart_from_step_1(story)
    story.close(1, {key: story.sample(key) for key in keys(1)[1:]})
    assert len(story.verdict().lost) == 1
