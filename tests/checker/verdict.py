"""Join plans, ledger, batches, blobs and the actors' logs; count what does not agree (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import msgspec

from ebbtide.turns import mask_of, stem
from ebbtide.wire import (
    Accepted,
    BatchManifest,
    GroupPlan,
    Journal,
    Rollout,
    SampleKey,
    Scored,
    Value,
)
from tests.checker.evidence import Evidence
from tests.checker.lineage import Lineage, expected, replay

Batches = Mapping[int, BatchManifest]
Held = Sequence[tuple[Accepted, Rollout]]


@dataclass(frozen=True)
class Verdict:
    """Counts for people, and lists of faults that must be empty in a healthy job."""

    expected: int
    accepted: int
    settled: int
    redispatched: int
    abandoned: int
    lost: Sequence[str]
    doubled: Sequence[str]
    unplanned: Sequence[str]
    settled_unrecorded: Sequence[str]
    batched_unaccepted: Sequence[str]
    missing_from_batch: Sequence[str]
    unreadable: Sequence[str]
    wrong_policy: Sequence[str]
    wrong_identity: Sequence[str]
    order: Sequence[str]

    def faults(self) -> dict[str, Sequence[str]]:
        """What must be empty and is not, by name."""
        found = {f.name: getattr(self, f.name) for f in fields(self)}
        return {name: each for name, each in found.items() if not isinstance(each, int) and each}

    def summary(self) -> str:
        """One line for people."""
        counts = f"expected {self.expected}, accepted {self.accepted}, settled {self.settled}"
        more = f"abandoned {self.abandoned}, dispatched again {self.redispatched}"
        return f"{counts}, lost {len(self.lost)}, doubled {len(self.doubled)}, {more}"


def examine(evidence: Evidence, *, complete: bool = True) -> Verdict:
    """Judge one job. `complete`: the job has ended, so its last step must be whole, too."""
    lineage = replay(evidence.records, evidence.manifest)
    frozen = {step: evidence.batch(ref) for step, ref in lineage.frozen.items()}
    batches = {step: batch for step, batch in frozen.items() if batch is not None}
    accepted = [record for found in lineage.accepted.values() for record in found]
    accepted += [record for found in lineage.passed.values() for record, _ in found]
    rollouts = [(record, evidence.rollout(record.ref)) for record in accepted]
    held = [(record, rollout) for record, rollout in rollouts if rollout is not None]
    unreadable = [record.ref.path for record, rollout in rollouts if rollout is None]
    unreadable += [ref.path for step, ref in lineage.frozen.items() if step not in batches]
    promised = {k for p in lineage.plans.values() for k in expected(p, evidence.job_uid)}
    outside = (lineage.accepted.keys() | lineage.scored.keys()) - promised
    return Verdict(
        expected=len(promised),
        accepted=len(lineage.accepted),
        settled=len(evidence.settled),
        redispatched=sum(count > 1 for count in lineage.handed_out.values()),
        abandoned=len(lineage.abandoned),
        lost=_lost(lineage, evidence.job_uid, complete=complete),
        doubled=list(_doubled(lineage, batches)),
        unplanned=[str(key) for key in sorted(outside)],
        settled_unrecorded=list(_unrecorded(evidence, lineage)),
        batched_unaccepted=list(_unaccepted(lineage, batches)),
        missing_from_batch=list(_missing(lineage, batches)),
        unreadable=unreadable,
        wrong_policy=list(_wrong_policy(lineage, held)),
        wrong_identity=[*_wrong_identity(held), *_wrong_turns(evidence, lineage, held)],
        order=lineage.faults,
    )


def _lost(lineage: Lineage, job_uid: str, *, complete: bool) -> list[str]:
    closed = [p for s, p in lineage.plans.items() if complete or s in lineage.committed]
    due = {key for plan in closed for key in expected(plan, job_uid)}
    ended = lineage.scored.keys() | lineage.abandoned.keys()
    return [str(key) for key in sorted(due - ended)]


def _doubled(lineage: Lineage, batches: Batches) -> Iterator[str]:
    for key, found in lineage.accepted.items():
        if len(found) > 1:
            yield f"{key} accepted {len(found)} times"
    counts = Counter(stem(row.key) for batch in batches.values() for row in batch.rows)
    yield from (f"{key} trained {count} times" for key, count in counts.items() if count > 1)
    both = lineage.scored.keys() & lineage.abandoned.keys()
    yield from (f"{key} scored and abandoned" for key in both)


def _unrecorded(evidence: Evidence, lineage: Lineage) -> Iterator[str]:
    """What an actor was told is in the ledger must be there, as the actor knows it."""
    for line in evidence.settled:
        record = lineage.ever.get(line.path)
        known = record is not None and record.ref.digest == line.digest
        if line.path and line.verdict == "accepted" and not known:
            yield f"{line.key} by {line.dispatch}"


def _unaccepted(lineage: Lineage, batches: Batches) -> Iterator[str]:
    for step, batch in batches.items():
        for row in batch.rows:
            refs = [record.ref for record in lineage.accepted.get(stem(row.key), [])]
            if row.key.step_issued != step or row.ref not in refs:
                yield f"{row.key} in the batch of step {step}"


def _missing(lineage: Lineage, batches: Batches) -> Iterator[str]:
    """Every valued sample of a group that trains is in its step's batch, or named as dropped."""
    for step, batch in batches.items():
        there = {stem(key) for key in (*(row.key for row in batch.rows), *batch.dropped)}
        for plan in lineage.plans[step].groups:
            yield from (str(key) for key in _trained(lineage, batch, plan) if key not in there)


def _trained(lineage: Lineage, batch: BatchManifest, plan: GroupPlan) -> list[SampleKey]:
    keys = [SampleKey(batch.job_uid, batch.step, plan.group, i) for i in range(plan.size)]
    valued = [key for key in keys if _valued(lineage.scored.get(key))]
    return valued if plan.purpose == "train" and len(valued) > 1 else []


def _valued(scored: Scored | None) -> bool:
    return scored is not None and isinstance(scored.score, Value)


def _wrong_policy(lineage: Lineage, held: Held) -> Iterator[str]:
    """In a synchronous step every token is the step's own policy's, and committed in turn."""
    for record, rollout in held:
        plan = lineage.plans.get(record.key.step_issued)
        used = {record.policy.digest, *(span.policy.digest for span in rollout.spans)}
        if plan is not None and used != {plan.policy.digest}:
            yield f"{record.key} drawn from {sorted(used)}, its step has {plan.policy.digest}"
    for step, plan in lineage.plans.items():
        before = lineage.committed.get(step - 1)
        if before is not None and before.policy != plan.policy:
            yield f"step {step} does not sample what step {step - 1} committed"


def _wrong_identity(held: Held) -> Iterator[str]:
    for record, rollout in held:
        where = record.ref.path
        if (rollout.key, rollout.dispatch) != (record.key, record.dispatch):
            yield f"{where} holds {rollout.key} of {rollout.dispatch}"
        whole = record.n_tokens + record.n_given
        sizes = {whole, rollout.n_tokens, len(rollout.logprobs) // 4}
        if len(sizes) > 1:
            yield f"{where}: lengths {sorted(sizes)} in ledger, tokens and log-probabilities"
        mask = mask_of(rollout.spans, rollout.n_tokens)
        if rollout.action_mask != mask.tobytes() or record.n_tokens != int(mask.sum()):
            yield f"{where}: mask, spans and the ledger disagree on who drew what"
        if record.n_given and not record.key.turn:
            yield f"{where}: a first turn with given tokens"


def _wrong_turns(evidence: Evidence, lineage: Lineage, held: Held) -> Iterator[str]:
    """Each turn begins with the very tokens of the one before and its reply, and draws some."""
    rollouts = {record.key: rollout for record, rollout in held}
    for found in lineage.passed.values():
        for record, continued in found:
            after = msgspec.structs.replace(record.key, turn=record.key.turn + 1)
            given = evidence.given(continued.given)
            if given is None or not _begins(given, rollouts[record.key].tokens):
                yield f"{continued.given.path} does not go on from {record.key}"
            elif after in rollouts and not _begins(rollouts[after], given.tokens):
                yield f"{after} does not begin with what was given"


def _begins(text: Rollout | Journal, tokens: bytes) -> bool:
    return len(text.tokens) > len(tokens) and text.tokens.startswith(tokens)
