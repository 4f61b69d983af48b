"""The job's ledger: step plans and the records that make acceptance durable (protocol.md 2)."""

from __future__ import annotations

from ebbtide.wire.base import Wire
from ebbtide.wire.data import Score
from ebbtide.wire.identity import Dispatch, PolicyRef, PromptRef, Ref, SampleKey


class GroupPlan(Wire, frozen=True):
    """One group of a step. purpose: train | eval. `prompt_tokens`: length of its prompt.

    `task`: the prompt's task tag. `turns`: how many the policy may have.
    """

    group: int
    prompt_id: str
    prompt_ref: PromptRef
    size: int
    purpose: str
    temperature: float
    max_new_tokens: int
    prompt_tokens: int = 0
    task: str = ""
    turns: int = 1


class StepPlan(Wire, frozen=True):
    """What a step set out to do: the sum of group sizes is what must come back.

    `digests`: (name, digest) of what shapes its data beside the policy: dataset, tokenizer,
    template, sampling.
    """

    step: int
    policy: PolicyRef
    groups: tuple[GroupPlan, ...]
    actors: int
    data_cursor: int
    digests: tuple[tuple[str, str], ...] = ()


class Epoch(Wire, frozen=True, tag="epoch"):
    """A planner took over. Segments at slots below `seals` are all that earlier epochs wrote."""

    n: int
    attempt: int
    seals: int
    parent: Ref | None


class StepOpened(Wire, frozen=True, tag="opened"):
    plan: StepPlan


class Extended(Wire, frozen=True, tag="extended"):
    """More training groups for the open step, numbered after those that it has.

    Their samples wait in the shares of the step's `Decided`: group g in share g modulo shares.
    """

    step: int
    groups: tuple[GroupPlan, ...]


class Decided(Wire, frozen=True, tag="decided"):
    """How the open step is laid out; written before anybody acts on it.

    `actors`: how many are wanted. `share_of`: packed int32, one per sample in the plan's order:
    the number of its share, 0 .. shares - 1. `decision`: JSON of the planner's own account:
    inputs, candidates, choice, reason.
    """

    step: int
    actors: int
    shares: int
    share_of: bytes
    decision: bytes


class Aged(Wire, frozen=True, tag="aged"):
    """The open step of this attempt has had so many seconds, from all its planners together.

    Only time in which a planner ran and had its broker counts, so that deadlines go on where
    the last planner left them.
    """

    step: int
    seconds: float


class Dispatched(Wire, frozen=True, tag="dispatched"):
    key: SampleKey
    dispatch: Dispatch
    actor: str
    policy: PolicyRef


class Accepted(Wire, frozen=True, tag="accepted"):
    """`n_tokens` and `n_given` as in the fact Finished."""

    key: SampleKey
    dispatch: Dispatch
    ref: Ref
    policy: PolicyRef
    n_tokens: int
    finish: str
    n_given: int = 0


class Continued(Wire, frozen=True, tag="continued"):
    """Turn `key.turn` is over, and the next one begins from `given`, which has `n_tokens`."""

    key: SampleKey
    given: Ref
    n_tokens: int
    scorer_digest: str


class Scored(Wire, frozen=True, tag="scored"):
    key: SampleKey
    score: Score
    scorer_digest: str


class Abandoned(Wire, frozen=True, tag="abandoned"):
    key: SampleKey
    why: str


class Adopted(Wire, frozen=True, tag="adopted"):
    """An accepted rollout of an earlier attempt serves the open step of this one."""

    key: SampleKey
    from_attempt: int
    ref: Ref


class Frozen(Wire, frozen=True, tag="frozen"):
    step: int
    manifest: Ref


class Committed(Wire, frozen=True, tag="committed"):
    step: int
    policy: PolicyRef
    index: Ref


class Checkpointed(Wire, frozen=True, tag="checkpointed"):
    step: int
    manifest: Ref


class Spent(Wire, frozen=True, tag="spent"):
    """Seconds of one pod in one step by cause.

    busy | loading | idle | parked | draining | wasted | startup.
    """

    step: int
    role: str
    pod: str
    cause: str
    seconds: float


Record = (
    Epoch
    | StepOpened
    | Extended
    | Decided
    | Aged
    | Dispatched
    | Accepted
    | Continued
    | Scored
    | Abandoned
    | Adopted
    | Frozen
    | Committed
    | Checkpointed
    | Spent
)
