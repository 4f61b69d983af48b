"""Commands to decode actors, replies, heartbeats and facts."""

from __future__ import annotations

from ebbtide.wire.base import Wire
from ebbtide.wire.data import Assign, Score
from ebbtide.wire.identity import (
    Dispatch,
    Fence,
    JournalRef,
    KvKey,
    KvTicket,
    PolicyRef,
    PromptRef,
    Ref,
    SampleKey,
)


class Submit(Wire, frozen=True, tag="submit"):
    """Hand samples to an actor; idempotent by dispatch."""

    fence: Fence
    assigns: tuple[Assign, ...]


class CutSamples(Wire, frozen=True, tag="cut"):
    """Stop these dispatches and report each by a Cut fact (or Finished, if it was).

    With a `reader`, the actor that is to go on with them, the Cut facts bring tickets for the KV
    where the engine still has it; a ticket is optional, and without it the reader computes.
    """

    fence: Fence
    dispatches: tuple[Dispatch, ...]
    reader: str = ""


class Settle(Wire, frozen=True, tag="settle"):
    """These terminal facts are in the ledger (or void): the actor may drop its copies."""

    fence: Fence
    accepted: tuple[Dispatch, ...]
    void: tuple[Dispatch, ...] = ()


class LoadPolicy(Wire, frozen=True, tag="load"):
    """Hold `policy` from the publication at `index`; samples of another policy are refused."""

    fence: Fence
    policy: PolicyRef
    index: Ref


class Sleep(Wire, frozen=True, tag="sleep"):
    """Give up weights and KV until a LoadPolicy wakes the actor; its unsettled facts stay.

    Refused (`busy`) while it has samples, holds KV or loads, and (`unable`) by an engine that
    cannot.
    """

    fence: Fence


class Drain(Wire, frozen=True, tag="drain"):
    """Stop intake, cut what runs, leave once the outbox is settled."""

    fence: Fence


ActorCommand = Submit | CutSamples | Settle | LoadPolicy | Sleep | Drain
PrefillCommand = LoadPolicy | Drain
"""What the planner tells the prefill service."""


# --- replies --------------------------------------------------------------------------------


class Ok(Wire, frozen=True, tag="ok"):
    """Done, or already done. `as_of`: the first heartbeat number that shows the effect."""

    as_of: int = 0


class Refusal(Wire, frozen=True, tag="refusal"):
    """Not done, and why.

    code: fenced | policy | full | draining | unknown | invalid | late | temporary | busy | unable.
    temporary: storage failed; the same command again is tried anew. late: it took longer than
    whoever asked would wait. busy: not while something is held or loads. unable: never.
    """

    code: str
    detail: str
    seen: Fence | None = None
    dispatches: tuple[Dispatch, ...] = ()


CommandReply = Ok | Refusal


# --- heartbeats (core publish, lossy, level-triggered): subject h.<job>.<role>.<instance> ----


class EngineStats(Wire, frozen=True):
    """tpot: seconds per output token of a running sample, lately; kv in tokens.

    Tokens that admitted samples needed prefilled were computed here (`prefill_tokens`), taken
    from a text with the same beginning (`prefill_shared`) or pulled by ticket
    (`prefill_imported`): the three add up to what an engine without sharing would compute.
    `prefill_seconds`: spent on all of them by this engine.
    """

    running: int = 0
    waiting: int = 0
    slots: int = 0
    kv_used: int = 0
    kv_total: int = 0
    tpot: float = 0.0
    prefill_tokens: int = 0
    decode_tokens: int = 0
    prefill_shared: int = 0
    prefill_imported: int = 0
    prefill_seconds: float = 0.0


class Counted(Wire, frozen=True, array_like=True):
    """What a process has counted since it began, by name and label (the figures `ebbtide_job_*`)."""

    name: str
    label: str
    value: float


class Heartbeat(Wire, frozen=True, tag="heartbeat"):
    """An actor's whole inventory. state: loading | serving | draining | empty | asleep.

    `running` is packed int32 of shape (n, 4): attempt, planner_epoch, seq, tokens so far.
    `outbox` lists terminal facts not yet settled. A dispatch in neither, in a heartbeat whose
    `number` is at least the reply's `as_of`, is lost. `incarnation` changes with each process.
    `holding` lists cut dispatches whose KV is neither read nor expired: the actor stays for them.
    `prefill_seconds`: spent by this process on prompts of samples that it finished.
    `counted`: what would be lost with the process, were it nowhere but at /metrics.
    `load_failure`: why the last try to load the wanted policy failed; it is tried again while
    the state is loading, and draining says that the actor has given up and ends.
    """

    actor: str
    incarnation: str
    number: int
    fence: Fence | None
    policy: PolicyRef | None
    state: str
    running: bytes
    outbox: tuple[Dispatch, ...]
    stats: EngineStats
    prefill_seconds: float = 0.0
    holding: tuple[Dispatch, ...] = ()
    load_failure: str = ""
    counted: tuple[Counted, ...] = ()


class LearnerBeat(Wire, frozen=True, tag="learner"):
    """The learner gang's state. phase: starting | idle | learning | saving.

    `reference`: digest of the frozen weights of the KL term; empty without one, or before it is
    known, which it is before a policy is shown.
    """

    attempt: int
    policy: PolicyRef | None
    index: Ref | None
    phase: str
    step: int
    reference: str = ""


class RewardBeat(Wire, frozen=True, tag="reward"):
    """A scorer process; `breaker_open` means it stopped taking work after repeated errors."""

    instance: str
    busy: int
    scored: int
    errors: int
    breaker_open: bool
    scorer_digest: str


class PrefillBeat(Wire, frozen=True, tag="prefill"):
    """The prefill service: what it holds and what it has done since it started.

    state, incarnation, number, load_failure: as in a Heartbeat. `layout`: of its KV, empty without
    a policy. `stats.prefill_tokens` were computed here; `granted_tokens` is what the readers of
    its tickets need not compute. `computed` counts prompts, the others requests.
    """

    instance: str
    incarnation: str
    number: int
    fence: Fence | None
    policy: PolicyRef | None
    state: str
    layout: str
    stats: EngineStats
    waiting: int = 0
    computed: int = 0
    granted: int = 0
    granted_tokens: int = 0
    refused: int = 0
    load_failure: str = ""


class PlannerBeat(Wire, frozen=True):
    """A planner lives: subject p.<job>. Actors that hear none for long end by themselves."""

    fence: Fence


Beat = Heartbeat | LearnerBeat | RewardBeat | PrefillBeat


# --- tickets for prompts (request/reply): subject k.<job> ---------------------------------------


class TicketRequest(Wire, frozen=True, tag="ticket"):
    """An actor asks the prefill service for the KV of a prompt, all its tokens but the last.

    `prompt` is packed, and `key` is its name. `fence` is that of the hand-out which needs it. The
    reader waits for `seconds`. `step`: of the sample that needs it.
    """

    fence: Fence
    reader: str
    policy: PolicyRef
    key: KvKey
    prompt: bytes
    seconds: float
    step: int = 0


class Granted(Wire, frozen=True, tag="granted"):
    """The KV is held for the reader that asked; whoever is refused computes."""

    ticket: KvTicket


TicketReply = Granted | Refusal


# --- facts (JetStream): subject f.<job>.<attempt>.<kind> --------------------------------------


class Finished(Wire, frozen=True, tag="finished"):
    """Terminal: the rollout blob is written.

    `n_tokens` were chosen by the policy, `n_given` given by an environment, in all turns so far.
    """

    key: SampleKey
    dispatch: Dispatch
    actor: str
    policy: PolicyRef
    ref: Ref
    n_tokens: int
    finish: str
    n_given: int = 0


class Cut(Wire, frozen=True, tag="cut"):
    """Terminal: stopped on request; its journal is complete up to `n_tokens`."""

    key: SampleKey
    dispatch: Dispatch
    actor: str
    journal: JournalRef | None
    n_tokens: int
    ticket: KvTicket | None = None


class Failed(Wire, frozen=True, tag="failed"):
    """Terminal: could not go on. code: journal_lost | prompt | engine | policy."""

    key: SampleKey
    dispatch: Dispatch
    actor: str
    code: str
    detail: str = ""


class ScoreReady(Wire, frozen=True, tag="score"):
    """A scorer's verdict on the rollout whose content digest is `rollout_digest`."""

    key: SampleKey
    rollout_digest: str
    score: Score
    scorer_digest: str
    seconds: float
    scorer: str


class TurnReady(Wire, frozen=True, tag="turn"):
    """The environment's reply to the rollout whose content digest is `rollout_digest`.

    `given`: blob of a Journal, the response so far with the reply, `n_tokens` long.
    """

    key: SampleKey
    rollout_digest: str
    given: Ref
    n_tokens: int
    scorer_digest: str
    seconds: float
    scorer: str


Fact = Finished | Cut | Failed | ScoreReady | TurnReady


class ScoreRequest(Wire, frozen=True):
    """Work for a scorer, published only after acceptance: subject s.<job>."""

    key: SampleKey
    attempt: int
    rollout: Ref
    prompt_id: str
    prompt_ref: PromptRef
