"""The open step's samples: where each one is, in arrays by sample number (pure).

Sample numbers run through the plan's groups in order. A hand-out is known by its code, one
integer for (planner epoch, seq): epochs rise over the whole job, so codes never meet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

import msgspec

from ebbtide.wire import (
    Accepted,
    Continued,
    Decided,
    Dispatch,
    Dispatched,
    Fence,
    GroupPlan,
    Invalid,
    JournalRef,
    Ref,
    SampleKey,
    Scored,
    StepPlan,
    Value,
    pack_ints,
    unpack_ints,
)

WAITING, OUT, ACCEPTED, VALUED, INVALID, ABANDONED = range(6)
_SEQ_BITS = 32


def code_of(dispatch: Dispatch) -> int:
    """The integer that names a hand-out inside the planner; never 0."""
    return (dispatch.planner_epoch << _SEQ_BITS) | dispatch.seq


class OpenStep:
    """State and outcome of each sample of one plan.

    WAITING -> OUT -> ACCEPTED -> VALUED | INVALID, any of the first three -> ABANDONED, and
    OUT -> WAITING when a hand-out is lost. `rollouts[i]` is the ledger's Accepted record;
    `journals[i]` says from which hand-out's journal the sample can go on, and how far.
    `ended` has the codes of hand-outs that are known to have been cut or to have failed.
    Of an episode all this is about the turn that `turns[i]` counts; ACCEPTED -> WAITING when the
    environment has replied. `given[i]`: what the turn begins from; `before[i]`: the rollout of the
    turn before; `passed`: codes of hand-outs that were accepted in turns before.
    `decided`: how the step is laid out. `refills`: rounds of groups that were added to the plan.
    `age`: seconds that the step has had as far as the ledger says, which is a little behind;
    `accepted_at[i]`: the step's age when the sample was accepted.
    """

    def __init__(self, plan: StepPlan, job_uid: str) -> None:
        sizes = [group.size for group in plan.groups]
        count = sum(sizes)
        self.plan = plan
        self.size = count
        self.starts = list(accumulate(sizes, initial=0))
        self.group_of = [g for g, size in enumerate(sizes) for _ in range(size)]
        self.states = bytearray(count)
        self.codes = [0] * count
        self.actors = [""] * count
        self.turns = [0] * count
        self.given: list[Continued | None] = [None] * count
        self.before: list[Accepted | None] = [None] * count
        self.passed: set[int] = set()
        self.journals: list[tuple[Dispatch, int] | None] = [None] * count
        self.hands: list[Dispatch | None] = [None] * count
        self.rollouts: list[Accepted | None] = [None] * count
        self.scores: list[Scored | None] = [None] * count
        self.decided: Decided | None = None
        self.refills, self.first_groups = 0, len(sizes)
        self.age = 0.0
        self.accepted_at = [0.0] * count
        self.sample_of: dict[int, int] = {}
        self.ended: set[int] = set()
        self.without_outcome = sizes
        self.undecoded = count
        self.open_groups = sum(size > 0 for size in sizes)
        self.counts = dict.fromkeys(("dispatches", "resumed", "restarted", "adopted", "void"), 0)
        self.wasted_tokens = 0
        self._job_uid, self._step, self._groups = job_uid, plan.step, len(sizes)

    def extended(self, groups: Sequence[GroupPlan]) -> None:
        """More groups, numbered after the others; they wait in the shares that there are."""
        sizes, before = [group.size for group in groups], self.size
        count = sum(sizes)
        self.plan = msgspec.structs.replace(self.plan, groups=(*self.plan.groups, *groups))
        self.starts += list(accumulate(sizes, initial=before))[1:]
        self.group_of += [self._groups + g for g, size in enumerate(sizes) for _ in range(size)]
        self.states += bytes(count)
        self.codes += [0] * count
        self.actors += [""] * count
        self.turns += [0] * count
        self.given += [None] * count
        self.before += [None] * count
        self.journals += [None] * count
        self.hands += [None] * count
        self.rollouts += [None] * count
        self.scores += [None] * count
        self.accepted_at += [0.0] * count
        self.without_outcome += sizes
        self.size, self.undecoded = before + count, self.undecoded + count
        self.open_groups += sum(size > 0 for size in sizes)
        self._groups += len(sizes)
        self.refills += 1
        if self.decided is not None:
            self.decided = _dealt_on(self.decided, self.group_of[before:])

    # --- who is who ---------------------------------------------------------------------------

    def key(self, sample: int) -> SampleKey:
        """The sample's name, in its present turn."""
        group = self.group_of[sample]
        index = sample - self.starts[group]
        return SampleKey(self._job_uid, self.plan.step, group, index, self.turns[sample])

    def find(self, key: SampleKey) -> int | None:
        """The sample's number, whatever its turn, or None if this step did not plan it."""
        group, index = key.group, key.index
        if key.step_issued != self._step or key.job_uid != self._job_uid:
            return None
        if not 0 <= group < self._groups or index < 0:
            return None
        sample = self.starts[group] + index
        return sample if sample < self.starts[group + 1] else None

    def holder(self, code: int) -> int | None:
        """The sample whose current hand-out is `code`, or None."""
        sample = self.sample_of.get(code)
        return sample if sample is not None and self.codes[sample] == code else None

    def held(self, codes: Iterable[int]) -> list[int]:
        """The samples whose current hand-outs these are."""
        holders = (self.holder(code) for code in codes)
        return [sample for sample in holders if sample is not None]

    def group(self, sample: int) -> GroupPlan:
        """The plan of the sample's group."""
        return self.plan.groups[self.group_of[sample]]

    def in_group(self, group: int) -> range:
        """Sample numbers of a group."""
        return range(self.starts[group], self.starts[group + 1])

    def where(self, state: int) -> Iterator[int]:
        """Samples in `state`, in order."""
        return (i for i, now in enumerate(self.states) if now == state)

    def journal(self, sample: int) -> JournalRef | None:
        """Where the sample can go on, if it has journalled tokens."""
        found = self.journals[sample]
        return JournalRef(self.key(sample), found[0], found[1]) if found else None

    def given_ref(self, sample: int) -> Ref | None:
        """What its turn begins from; None in the first."""
        given = self.given[sample]
        return given.given if given else None

    def drawn_before(self, sample: int) -> int:
        """Tokens that the policy chose in the turns before this one."""
        before = self.before[sample]
        return before.n_tokens if before else 0

    def given_tokens(self, sample: int) -> int:
        """Tokens of its response that an environment gave."""
        given = self.given[sample]
        return given.n_tokens - self.drawn_before(sample) if given else 0

    def may_go_on(self, sample: int) -> bool:
        """Whether its accepted turn is one that an environment may still reply to."""
        accepted = self.rollouts[sample]
        if accepted is None or self.states[sample] != ACCEPTED:
            return False
        return accepted.finish == "stop" and self.turns[sample] + 1 < self.group(sample).turns

    @property
    def awaited(self) -> int:
        """How many samples may have a further turn, and wait for their environment's word."""
        return self.undecoded - self.states.count(WAITING) - self.states.count(OUT)

    # --- what the ledger says -----------------------------------------------------------------

    def dispatched(self, sample: int, record: Dispatched) -> None:
        """A new hand-out; whatever was current before is not any more."""
        code = code_of(record.dispatch)
        self.sample_of[code] = sample
        self.codes[sample] = code
        self.hands[sample] = record.dispatch
        self.actors[sample] = record.actor
        self.states[sample] = OUT
        self.counts["dispatches"] += 1

    def accepted(self, sample: int, record: Accepted) -> None:
        """The one rollout of this sample, or of its turn."""
        assert self.states[sample] in (WAITING, OUT), "a sample is accepted once"
        self.states[sample] = ACCEPTED
        self.rollouts[sample] = record
        self.accepted_at[sample] = self.age
        self.journals[sample] = None
        self.undecoded -= not self.may_go_on(sample)

    def adopted(self, sample: int, record: Accepted) -> None:
        """An earlier attempt's rollout serves this step."""
        code = code_of(record.dispatch)
        self.sample_of[code] = sample
        self.codes[sample] = code
        self.hands[sample] = record.dispatch
        self.turns[sample] = record.key.turn
        self.counts["adopted"] += 1
        self.accepted(sample, record)

    def continued(self, sample: int, record: Continued) -> None:
        """The environment has replied: the next turn waits for a hand-out."""
        assert self.may_go_on(sample), "a turn is replied to once, after acceptance"
        assert self.turns[sample] == record.key.turn
        self.passed.add(self.codes[sample])
        self.before[sample], self.rollouts[sample] = self.rollouts[sample], None
        self.given[sample] = record
        self.turns[sample] += 1
        self.codes[sample], self.hands[sample] = 0, None
        self.states[sample] = WAITING

    def scored(self, sample: int, record: Scored) -> None:
        """The one verdict: a value, or none that could be had."""
        assert self.states[sample] == ACCEPTED, "a sample is scored once, after acceptance"
        assert isinstance(record.score, Value | Invalid), "an error is no verdict"
        self.undecoded -= self.may_go_on(sample)
        self.states[sample] = VALUED if isinstance(record.score, Value) else INVALID
        self.scores[sample] = record
        self._end(sample)

    def abandoned(self, sample: int) -> None:
        """Given up."""
        assert self.states[sample] <= ACCEPTED, "a sample has one outcome"
        self.undecoded -= self.states[sample] != ACCEPTED or self.may_go_on(sample)
        self.states[sample] = ABANDONED
        self._end(sample)

    def _end(self, sample: int) -> None:
        group = self.group_of[sample]
        self.without_outcome[group] -= 1
        self.open_groups -= self.without_outcome[group] == 0

    # --- what only this planner knows ---------------------------------------------------------

    def lost(self, sample: int) -> None:
        """The current hand-out will bring no rollout; its sample waits for another."""
        assert self.states[sample] == OUT
        self.states[sample] = WAITING

    def found(self, sample: int, actor: str) -> None:
        """A hand-out that was given up runs after all."""
        self.states[sample] = OUT
        self.actors[sample] = actor

    def progressed(self, sample: int, dispatch: Dispatch, tokens: int) -> bool:
        """The journal of `dispatch` reaches `tokens`; a longer one is kept until then.

        Whether that is further than anybody was.
        """
        known = self.journals[sample]
        further = tokens > (known[1] if known else 0)
        if further or (known and tokens == known[1]):
            self.journals[sample] = (dispatch, tokens)
        return further

    def goes_on_from(self, code: int) -> bool:
        """Whether a sample's only journal is that of hand-out `code`, which must be kept."""
        sample = self.sample_of.get(code)
        if sample is None or self.states[sample] not in (WAITING, OUT):
            return False
        known = self.journals[sample]
        return known is not None and code_of(known[0]) == code

    def begins_again(self, sample: int, fence: Fence) -> bool:
        """Whether an earlier planner's hand-out was never shown to this one, and may have run.

        Its journal's length went with whoever knew it, so the sample begins at its prompt.
        """
        old = self.hands[sample]
        if old is None or self.journals[sample] is not None or code_of(old) in self.ended:
            return False
        return Fence(old.attempt, old.planner_epoch) < fence

    def restart(self, sample: int) -> None:
        """The journal is gone: the sample begins again at its prompt, or where its turn began."""
        known, given = self.journals[sample], self.given[sample]
        self.wasted_tokens += known[1] - (given.n_tokens if given else 0) if known else 0
        self.counts["restarted"] += 1
        self.journals[sample] = None


def _dealt_on(decided: Decided, groups: Sequence[int]) -> Decided:
    """With more samples, of these groups: group after group, to one share after the other."""
    more = [group % decided.shares for group in groups]
    shares = pack_ints([*unpack_ints(decided.share_of).tolist(), *more])
    return msgspec.structs.replace(decided, share_of=shares)
