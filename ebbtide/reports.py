"""What a step did and what a job did, for people (pure).

The planner writes one StepReport per committed step as JSON (`paths.step_report`); the gateway,
the CLI and report.html read them. They are derived: nothing decides by them, and losing one
loses no sample. Seconds are wall seconds unless a name says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from ebbtide.figures import SliceReport
from ebbtide.models import Model

CAUSES = ("busy", "loading", "idle", "parked", "draining", "wasted", "startup")
Cause = Literal["busy", "loading", "idle", "parked", "draining", "wasted", "startup"]


class PhaseSeconds(Model):
    """How long each phase of the step lasted; what was hidden under another phase is not here."""

    plan: float = Field(0.0, ge=0, description="From the last commit until the step was opened.")
    sync: float = Field(0.0, ge=0, description="Until the first sample was handed out.")
    decode: float = Field(0.0, ge=0, description="Until the last sample was accepted.")
    score: float = Field(0.0, ge=0, description="Until the last group was closed.")
    learn: float = Field(0.0, ge=0, description="Until the next policy was published.")


class SampleCounts(Model):
    """Where the step's samples went. expected = valued + invalid + abandoned once closed."""

    expected: int = Field(ge=0, description="Sum of the group sizes of the plan.")
    accepted: int = Field(0, ge=0, description="Rollouts in the ledger, one per sample.")
    valued: int = Field(0, ge=0, description="Samples with a reward.")
    invalid: int = Field(0, ge=0, description="The verifier failed: left the group's baseline.")
    abandoned: int = Field(0, ge=0, description="Given up at a deadline or after retries.")
    adopted: int = Field(0, ge=0, description="Accepted by an earlier attempt, used again.")
    dispatches: int = Field(0, ge=0, description="Hand-outs, first ones and repeated ones.")
    resumed: int = Field(0, ge=0, description="Hand-outs that went on from journalled tokens.")
    restarted: int = Field(0, ge=0, description="Hand-outs that had tokens and lost them.")
    void: int = Field(0, ge=0, description="Finished answers of hand-outs no longer current.")


class GroupCounts(Model):
    """What became of the training groups."""

    expected: int = Field(0, ge=0, description="Training groups of the plan.")
    trained: int = Field(0, ge=0, description="Groups with at least two valued samples.")
    zero_variance: int = Field(0, ge=0, description="Of these, groups whose rewards are equal.")
    refilled: int = Field(0, ge=0, description="Groups drawn in place of those without variance.")
    refills: int = Field(0, ge=0, description="Rounds in which that was done.")
    dropped_tokens: int = Field(
        0, ge=0, description="Response tokens of groups that left the batch: sampled in vain."
    )


class RewardStats(Model):
    """Rewards of the valued training samples."""

    mean: float = Field(description="Mean total.")
    std: float = Field(description="Standard deviation of the totals over all samples.")
    minimum: float = Field(description="Lowest total.")
    maximum: float = Field(description="Highest total.")
    pass_rate: float | None = Field(
        None, ge=0, le=1, description="Share of samples at or above evaluation.passThreshold."
    )
    components: dict[str, float] = Field(
        default_factory=dict, description="Mean of each component before its weight."
    )
    faults: dict[str, int] = Field(default_factory=dict, description="Samples by their own fault.")
    timed_out: float | None = Field(None, ge=0, le=1, description="Share scored past the limit.")


class SamplingReport(Model):
    """How the training samples were drawn, and how old they were when they were used."""

    temperature: float = Field(description="Of sampling.")
    max_new_tokens: int = Field(ge=0, description="Limit of a response.")
    group_size: int = Field(ge=0, description="Samples of one prompt.")
    age: float = Field(0.0, ge=0, description="Mean number of versions behind the step's policy.")
    oldest: int = Field(0, ge=0, description="The most.")


class EvalStats(Model):
    """Held-out evaluation of the policy that this step sampled from."""

    mean: float = Field(description="Mean reward.")
    pass_at_k: float = Field(description="Share of prompts with a sample at the pass threshold.")
    k: int = Field(ge=1, description="Samples per prompt.")
    prompts: int = Field(ge=0, description="Prompts with at least one valued sample.")
    samples: int = Field(ge=0, description="Valued samples.")


class TokenCounts(Model):
    """Tokens of the accepted rollouts of the step, training and evaluation."""

    prompt: int = Field(0, ge=0, description="Prompt tokens, once per group.")
    response: int = Field(0, ge=0, description="Response tokens.")
    mean: float = Field(0.0, ge=0, description="Mean response length.")
    p50: float = Field(0.0, ge=0, description="Median response length.")
    p90: float = Field(0.0, ge=0, description="90th percentile of the response length.")
    longest: int = Field(0, ge=0, description="Longest response.")
    truncated: int = Field(0, ge=0, description="Responses that ended at the limit.")
    wasted: int = Field(0, ge=0, description="Tokens known to have been drawn for nothing.")


class PrefillCounts(Model):
    """Prompt tokens of the step, counted in the engines; resumed texts are prompts here too."""

    needed: int = Field(0, ge=0, description="What engines that share nothing would compute.")
    computed: int = Field(0, ge=0, description="By all actors and the prefill service.")
    in_service: int = Field(0, ge=0, description="Of these, by the prefill service.")
    imported: int = Field(0, ge=0, description="Pulled by actors, by tickets.")
    saved_by_caching: int = Field(
        0, ge=0, description="Taken by actors from texts of theirs that begin alike."
    )
    saved_by_dedup: int = Field(
        0, description="imported - in_service: what caches of the actors alone would not save."
    )
    actor_seconds: float = Field(0.0, ge=0, description="Spent on prompts by the actors' engines.")
    service_seconds: float = Field(0.0, ge=0, description="Spent on them by the service's.")


class Interval(Model):
    """An actor's state over time, in seconds since the step was opened."""

    cause: Cause = Field(description="What it did.")
    start: float = Field(ge=0)
    end: float = Field(ge=0)


class ActorTimeline(Model):
    """One decode actor in one step."""

    name: str = Field(description="Pod name.")
    samples: int = Field(0, ge=0, description="Rollouts accepted from it.")
    tokens: int = Field(0, ge=0, description="Response tokens of these.")
    intervals: tuple[Interval, ...] = Field((), description="In order of time, without overlap.")


class LearnerReport(Model):
    """The update. `stats` are the learner's own numbers (loss, gradient norm, mismatch, ...)."""

    seconds: float = Field(0.0, ge=0, description="As the learner measured it.")
    tokens: int = Field(0, ge=0, description="Tokens in the denominator.")
    sequences: int = Field(0, ge=0, description="Sequences in the denominator.")
    computed: int = Field(0, ge=0, description="Sequences that went through the model.")
    stats: dict[str, float] = Field(default_factory=dict)


class CostEntry(Model):
    """Seconds of one role by cause; `cost` is unset where the price is unknown."""

    role: str = Field(description="planner, prefill, decode, reward or learner.")
    cause: Cause
    seconds: float = Field(ge=0)
    cost: float | None = Field(None, ge=0, description="In the job's currency.")


class CostReport(Model):
    """What the planner can explain of the step's cost, by role and cause."""

    currency: str = "USD"
    total: float | None = Field(None, ge=0, description="Unset if any price is unknown.")
    entries: tuple[CostEntry, ...] = ()


class ObjectiveReport(Model):
    """What the plan was judged by."""

    type: str = Field(description="value-of-time or lambda.")
    value: float | None = Field(None, description="Lower is better; unset if it is not known.")


class CandidateReport(Model):
    """A layout that was weighed."""

    kind: str = Field(description="Rule of assignment.")
    actors: int = Field(ge=0)
    seconds: float = Field(description="Until the slowest actor ends, starts included.")
    steady_seconds: float = Field(description="The same, had every actor been there.")
    actor_seconds: float = Field(description="Held until each has ended, starts included.")
    cost: float | None = Field(
        None, description="In the job's currency; unset: a price is unknown."
    )
    score: float = Field(description="By the objective; the smallest is the best.")
    chosen: bool = False


class CalibrationReport(Model):
    """How good the forecast of lengths at the step's opening was; unset: nothing to measure."""

    samples: int = Field(ge=0, description="Answers compared.")
    censored: int = Field(ge=0, description="Of these, answers that the limit cut.")
    coverage_p50: float | None = Field(None, description="Share at or below the median: 0.5.")
    coverage_p90: float | None = Field(None, description="Share at or below P90: 0.9 is right.")
    mae: float | None = Field(None, description="Mean absolute error of the median, tokens.")
    rank: float | None = Field(None, description="Rank correlation of expected and realised.")
    tail_recall: float | None = Field(
        None, description="Share of the longest tenth among those expected longest."
    )


class LengthPoint(Model):
    """One answer: what was expected of it, and its length, in tokens."""

    expected: float
    p90: float
    realised: int
    cut: bool = Field(description="The limit ended it.")


class DecisionReport(Model):
    """How the step was laid out and why, and what it came to. Unset: not known at the time."""

    rule: str = Field(description="chosen, kept (another gains too little), held, or idle.")
    reason: str = Field(description="In words.")
    actors: int = Field(ge=0, description="Wanted.")
    scaling: str = Field(description="static or elastic.")
    prediction: str = Field(description="blend, ewma or none.")
    together: bool = Field(True, description="Samples of a group stayed on one actor.")
    profile: str = Field("", description="Where the times per token came from.")
    start_seconds: float = Field(0.0, ge=0, description="What a start was thought to take.")
    samples: int = Field(0, ge=0)
    items: int = Field(0, ge=0, description="Samples, or groups that stayed together.")
    tokens: float = Field(0.0, description="Expected in all.")
    longest: float = Field(0.0, description="The longest expected answer, tokens.")
    minimum: int = Field(0, ge=0, description="Bounds of the pool.")
    maximum: int = Field(0, ge=0)
    serving: int = Field(0, ge=0, description="Actors that were there.")
    loading: int = Field(0, ge=0, description="Actors that were coming.")
    parked: int = Field(0, ge=0, description="Actors that slept.")
    wake_seconds: float = Field(0.0, ge=0, description="What waking one was thought to take.")
    digest: str = Field("", description="Of the predicted demand.")
    prefill: str = Field("", description="service or colocated, with prefill.mode auto.")
    prefill_reason: str = Field("", description="Why, in words.")
    candidates: tuple[CandidateReport, ...] = ()
    predicted_decode_seconds: float | None = None
    realised_decode_seconds: float = 0.0
    predicted_step_seconds: float | None = Field(
        None, description="With what the other phases took in the steps before."
    )
    realised_step_seconds: float = 0.0
    predicted_actor_seconds: float | None = None
    realised_busy_seconds: float = Field(0.0, description="Actors decoding, this step.")
    realised_held_seconds: float = Field(0.0, description="Actors there while it was decoded.")
    calibration: CalibrationReport | None = None
    lengths: tuple[LengthPoint, ...] = Field((), description="Up to 200 of the step's answers.")


class MoveReport(Model):
    """Samples that were to go from one actor to another at one moment."""

    at: float = Field(ge=0, description="Seconds since the step was opened.")
    source: str
    target: str
    samples: int = Field(ge=1)
    how: Literal["kv", "recompute"] = Field(description="kv: the target was to get the KV.")
    predicted_seconds: float = Field(0.0, description="Until the slowest could go on.")
    predicted_gain: float = Field(
        0.0, description="Of emptying the source, as the objective weighs; 0: nothing was weighed."
    )


class MigrationReport(Model):
    """Samples that moved while they ran, as far as the step's last planner saw it.

    ordered = moved + finished + failed; moved = with_kv + recomputed.
    """

    rule: str = Field(description="benefit, tau, global-cut or none.")
    ordered: int = Field(0, ge=0, description="Samples that were to move.")
    moved: int = Field(0, ge=0, description="Those that went on with their target.")
    with_kv: int = Field(0, ge=0, description="Of these, with a ticket for their KV.")
    recomputed: int = Field(0, ge=0, description="Of these, without: the target computed.")
    finished: int = Field(0, ge=0, description="Those that ended before they were cut.")
    failed: int = Field(0, ge=0, description="Those that stayed, or went on with somebody else.")
    kv_tokens: int = Field(0, ge=0, description="Tokens whose KV the tickets were for.")
    kv_bytes: int | None = Field(None, ge=0, description="Unset: bytes per token are not known.")
    pause_seconds: float = Field(0.0, ge=0, description="Until what had moved was seen: at most.")
    moves: tuple[MoveReport, ...] = Field((), description="Up to 200, in order.")


class StepReport(Model):
    """One step, as its planner saw it."""

    job_uid: str
    step: int = Field(ge=0)
    attempt: int = Field(ge=0)
    epoch: int = Field(ge=0, description="The planner's epoch at the commit.")
    kind: Literal["train", "rollout", "eval", "sft"] = Field("train", description="eval: the last.")
    policy: int = Field(ge=0, description="Version that was sampled from.")
    policy_digest: str
    next_policy: int = Field(ge=0, description="Version after the step.")
    next_policy_digest: str
    started_at: float = Field(0.0, description="Unix seconds when the step was opened.")
    seconds: float = Field(0.0, ge=0, description="From the last commit to this one.")
    phases: PhaseSeconds = Field(default_factory=lambda: PhaseSeconds())
    samples: SampleCounts
    groups: GroupCounts = Field(default_factory=lambda: GroupCounts())
    rewards: RewardStats | None = None
    sampling: SamplingReport | None = Field(None, description="Unset: nothing was accepted.")
    evaluation: EvalStats | None = None
    tokens: TokenCounts = Field(default_factory=lambda: TokenCounts())
    prefill: PrefillCounts = Field(default_factory=lambda: PrefillCounts())
    counted: dict[str, dict[str, float]] = Field(
        default_factory=dict, description="What actors counted beside, by name and label."
    )
    actors: tuple[ActorTimeline, ...] = ()
    learner: LearnerReport | None = None
    cost: CostReport = Field(default_factory=lambda: CostReport())
    objective: ObjectiveReport | None = None
    decision: DecisionReport | None = Field(None, description="How it was laid out, and why.")
    migration: MigrationReport | None = Field(None, description="Unset: nothing was to move.")
    slices: tuple[SliceReport, ...] = Field((), description="Training samples that are alike.")


class JobReport(Model):
    """A job so far: sums over its committed steps, first and last of what should change."""

    steps: int = Field(ge=0, description="Committed steps, the closing evaluation included.")
    samples_expected: int = Field(ge=0)
    samples_accepted: int = Field(ge=0)
    samples_abandoned: int = Field(ge=0)
    samples_invalid: int = Field(ge=0)
    samples_lost: int = Field(ge=0, description="Expected samples without any outcome.")
    samples_doubled: int = Field(ge=0, description="Acceptances beyond one per sample.")
    reward_first: float | None = Field(None, description="Mean reward of the first step.")
    reward_last: float | None = Field(None, description="Mean reward of the last step.")
    eval_reward_first: float | None = Field(None, description="Of the initial policy.")
    eval_reward_last: float | None = Field(None, description="Of the last evaluated policy.")
    seconds: float = Field(ge=0)
    response_tokens: int = Field(ge=0)
    actors_min: int = Field(0, ge=0, description="Decode actors held while samples were decoded,")
    actors_max: int = Field(0, ge=0, description="at the fewest and at the most.")
    migrations: int = Field(0, ge=0, description="Samples that moved while they ran.")
    prefill_tokens_computed: int = Field(0, ge=0, description="Prompt tokens, by all engines.")
    prefill_tokens_saved: int = Field(0, description="By caches of the actors and by dedup.")
    cost: float | None = Field(None, ge=0, description="Unset if any price is unknown.")
    currency: str = "USD"
    phases: PhaseSeconds = Field(default_factory=lambda: PhaseSeconds())


def summarise(steps: Sequence[StepReport]) -> JobReport:
    """Sum up `steps`, which are one per step number and in order."""
    rewards = [s.rewards.mean for s in steps if s.rewards]
    evals = [s.evaluation.mean for s in steps if s.evaluation]
    totals = [s.cost.total for s in steps]
    known = [total for total in totals if total is not None]
    samples = [s.samples for s in steps]
    held = [count for step in steps for count in _held(step)]
    return JobReport(
        steps=len(steps),
        samples_expected=sum(s.expected for s in samples),
        samples_accepted=sum(s.accepted for s in samples),
        samples_abandoned=sum(s.abandoned for s in samples),
        samples_invalid=sum(s.invalid for s in samples),
        samples_lost=sum(max(0, s.expected - _ended(s)) for s in samples),
        samples_doubled=sum(max(0, _ended(s) - s.expected) for s in samples),
        reward_first=rewards[0] if rewards else None,
        reward_last=rewards[-1] if rewards else None,
        eval_reward_first=evals[0] if evals else None,
        eval_reward_last=evals[-1] if evals else None,
        seconds=sum(s.seconds for s in steps),
        response_tokens=sum(s.tokens.response for s in steps),
        actors_min=min(held, default=0),
        actors_max=max(held, default=0),
        migrations=sum(s.migration.moved for s in steps if s.migration),
        prefill_tokens_computed=sum(s.prefill.computed for s in steps),
        prefill_tokens_saved=sum(s.prefill.needed - s.prefill.computed for s in steps),
        cost=sum(known) if len(known) == len(totals) else None,
        currency=steps[-1].cost.currency if steps else "USD",
        phases=_phases([s.phases for s in steps]),
    )


def _ended(samples: SampleCounts) -> int:
    return samples.valued + samples.invalid + samples.abandoned


def _phases(phases: Sequence[PhaseSeconds]) -> PhaseSeconds:
    names = PhaseSeconds.model_fields
    return PhaseSeconds(**{name: sum(getattr(p, name) for p in phases) for name in names})


def _held(step: StepReport) -> list[int]:
    """How many actors were held at each moment of the decode phase at which that changes."""
    begin, end = step.phases.sync, step.phases.sync + step.phases.decode
    spans = [
        (part.start, part.end)
        for actor in step.actors
        for part in actor.intervals
        if part.end > begin and part.start < end and part.cause != "parked"
    ]
    moments = {begin, *(at for span in spans for at in span if begin < at < end)}
    return [sum(start <= at < until for start, until in spans) for at in moments] if spans else []
