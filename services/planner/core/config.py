"""What the core must know of its job, drawn from the job's spec once (pure)."""

from __future__ import annotations

import msgspec

from ebbtide.profiles import ProfileFile
from ebbtide.rl.shaping import Penalty, penalty_of
from ebbtide.spec import (
    CispoSpec,
    DapoSpec,
    GrpoSpec,
    GspoSpec,
    Lambda,
    PolicyGradientSpec,
    PpoSpec,
    PriceSpec,
    ReinforceSpec,
    RLHFJobSpec,
    RlooSpec,
    SupervisedSpec,
    ValueOfTime,
)
from ebbtide.wire import DatasetIndex, PolicyRef, Ref
from services.planner.core.steering import Steering, steer


class Patience(msgspec.Struct, frozen=True):
    """How long the planner waits before it acts by itself, in seconds."""

    lease: float = 10.0
    """An actor that was not heard for this long has lost its samples."""
    join: float = 10.0
    """From the first step's opening: work of actors that are still starting is kept for them."""
    submit: float = 3.0
    """Reply to Submit."""
    load: float = 5.0
    """Reply to LoadPolicy, which says Ok at once; heartbeats tell when the policy is held."""
    learner: float = 5.0
    """Reply to Learn and Save, which say Working at once."""
    poll: float = 2.0
    """The learner is asked again at least this often."""
    retry: float = 0.5
    """After a command without an answer; doubled with each further one, up to `poll`."""
    settle: float = 0.1
    """Settled dispatches are gathered this long into one message."""
    note: float = 5.0
    """How far the ledger may lag behind the open step's age, for deadlines after a restart."""
    rescore: float = 3.0
    """Scorers that idle this long while samples wait for scores are asked again."""


class Evaluation(msgspec.Struct, frozen=True):
    """Held-out evaluation; `prompts` is already bounded by the data."""

    every: int
    prompts: int
    samples: int
    temperature: float
    threshold: float


class Grpo(msgspec.Struct, frozen=True):
    """What GRPO needs of the planner.

    `score_tries`: how often a score is asked for; a scorer retries by itself before it reports
    an error, so this is about scorers that are lost or sick.
    """

    prompts: int
    group_size: int
    temperature: float
    max_new_tokens: int
    scale: str
    drop_zero: bool
    skip_zero: bool
    replicas: int
    slots: int
    score_tries: int
    evaluation: Evaluation | None
    length_penalty: Penalty | None = None
    keep_truncated: bool = True
    refills: int = 0
    """Most rounds in which a step draws other prompts for groups without variance."""
    turns: int = 1
    """How many turns the policy has in an episode."""


class Sft(msgspec.Struct, frozen=True):
    """What supervised fine-tuning needs of the planner."""

    batch: int
    updates: int


class Recorded(msgspec.Struct, frozen=True):
    """A job that learns from the batches of another one, which froze them in its `attempt`.

    `first`: the recorded step of this job's step 0.
    """

    uid: str
    attempt: int
    first: int


class Given(msgspec.Struct, frozen=True):
    """The published policy that a job without a learner samples from, in every step."""

    policy: PolicyRef
    index: Ref


class Deadlines(msgspec.Struct, frozen=True):
    """Seconds, as in the job's spec."""

    step: float
    score: float
    learn: float


class Economy(msgspec.Struct, frozen=True):
    """Prices per hour by role (None: unknown) and what a plan is judged by.

    `weight`: of time, for the objective lambda. `parked_share`: of an actor's price, asleep.
    """

    currency: str
    per_hour: dict[str, float | None]
    objective: str
    hour_worth: float
    weight: float = 0.7
    parked_share: float = 1.0

    def of(self, role: str, cause: str, seconds: float) -> float | None:
        """Cost of `seconds` of one pod of `role`; None where the price is unknown."""
        per_hour = self.per_hour.get(role)
        share = self.parked_share if cause == "parked" else 1.0
        return None if per_hour is None else seconds / 3600 * per_hour * share


class JobConfig(msgspec.Struct, frozen=True):
    """The whole of it. `work` says which kind of job this is."""

    job_uid: str
    seed: int
    shuffle: bool
    total_steps: int
    work: Grpo | Sft | Recorded
    ranks: int
    microbatch_tokens: int
    checkpoint_every: int
    retain: int
    save_on_suspend: bool
    deadlines: Deadlines
    economy: Economy
    patience: Patience
    steering: Steering = Steering()
    packed: bool = False
    shared: bool = False
    given: Given | None = None
    """There is no learner: `ranks` are those that its batches are laid out for."""

    @property
    def learners(self) -> int:
        """Pods of the learner that the job holds."""
        return 0 if self.given else self.ranks

    @property
    def last_step(self) -> int:
        """Number of the last step; the closing one, with evaluation alone, if there is any."""
        closing = isinstance(self.work, Grpo) and self.work.evaluation is not None
        return self.total_steps if closing else self.total_steps - 1

    def evaluates(self, step: int) -> bool:
        """Whether eval groups ride along in `step`: every n-th, and the closing one."""
        if not isinstance(self.work, Grpo) or self.work.evaluation is None:
            return False
        return step % self.work.evaluation.every == 0 or step == self.total_steps


class Data(msgspec.Struct, frozen=True):
    """The prepared data: indices, and the blob of the training index for the learner."""

    train: DatasetIndex
    train_ref: Ref
    eval: DatasetIndex | None = None

    @property
    def warning(self) -> str:
        """What is odd with the rows, or empty."""
        held_out = self.eval.warning if self.eval else ""
        return "; ".join(filter(None, (self.train.warning, held_out and f"held out: {held_out}")))


def rows_per_step(spec: RLHFJobSpec) -> int:
    """Rows of the data order that a training step uses up."""
    if isinstance(spec.algorithm, SupervisedSpec):
        return spec.algorithm.batch_size * spec.algorithm.updates_per_step
    return spec.training.prompts_per_step


def configure(
    spec: RLHFJobSpec,
    *,
    job_uid: str,
    data: Data,
    patience: Patience | None = None,
    profile: ProfileFile | None = None,
    given: Given | None = None,
) -> JobConfig:
    """Draw the core's configuration from a checked spec and the data that was prepared.

    `profile`: the file at `decode.profile`, if the job names one. `given`: the policy of a job that
    never learns.
    """
    return JobConfig(
        job_uid=job_uid,
        seed=spec.seed,
        shuffle=spec.dataset.shuffle,
        total_steps=spec.training.total_steps,
        work=_work(spec, data),
        ranks=spec.learner.ranks,
        microbatch_tokens=spec.training.micro_batch_tokens,
        checkpoint_every=spec.checkpoint.every_steps,
        retain=spec.checkpoint.retain,
        save_on_suspend=spec.checkpoint.on_suspend,
        deadlines=Deadlines(
            step=spec.deadlines.step_seconds,
            score=spec.deadlines.score_seconds,
            learn=spec.deadlines.learn_seconds,
        ),
        economy=_economy(spec),
        patience=patience or Patience(),
        steering=steer(spec, profile),
        packed=spec.learner.packing,
        shared=spec.learner.share_prompts,
        given=given,
    )


def _work(spec: RLHFJobSpec, data: Data) -> Grpo | Sft | Recorded:
    algorithm, training, recorded = spec.algorithm, spec.training, spec.recorded
    if recorded is not None:
        return Recorded(recorded.uid, recorded.attempt, recorded.first_step)
    if isinstance(algorithm, SupervisedSpec):
        return Sft(batch=algorithm.batch_size, updates=algorithm.updates_per_step)
    return Grpo(
        prompts=training.prompts_per_step,
        group_size=algorithm.group_size,
        temperature=training.temperature,
        max_new_tokens=training.max_response_tokens,
        scale=baseline_of(algorithm),
        drop_zero=algorithm.zero_variance == "drop",
        skip_zero=moves_nothing_at_zero(algorithm),
        replicas=spec.decode.replicas,
        slots=spec.decode.slots,
        score_tries=2 if spec.reward and spec.reward.retries else 1,
        evaluation=_evaluation(spec, data),
        length_penalty=penalty_of(algorithm.length_penalty),
        keep_truncated=algorithm.truncated == "keep",
        refills=algorithm.refill_rounds if isinstance(algorithm, DapoSpec) else 0,
        turns=spec.environment.max_turns if spec.environment else 1,
    )


def baseline_of(algorithm: PolicyGradientSpec) -> str:
    """What the planner makes of a group's rewards (`ebbtide.rl.advantages`)."""
    if isinstance(algorithm, RlooSpec):
        return "leave-one-out"
    if isinstance(algorithm, ReinforceSpec):
        return "none" if algorithm.baseline == "group" else "raw"
    if isinstance(algorithm, PpoSpec):
        return "raw"
    assert isinstance(algorithm, GrpoSpec | DapoSpec | GspoSpec | CispoSpec)
    return algorithm.advantage_scale


def moves_nothing_at_zero(algorithm: PolicyGradientSpec) -> bool:
    """Else a sample must be computed, because it moves the policy even at advantage 0.

    A term of KL or entropy does that, and so does normalising over the whole batch.
    """
    terms = algorithm.kl_coefficient + algorithm.entropy_coefficient
    return not terms and not isinstance(algorithm, ReinforceSpec | PpoSpec)


def _evaluation(spec: RLHFJobSpec, data: Data) -> Evaluation | None:
    if data.eval is None or data.eval.n_rows == 0:
        return None
    wanted = spec.evaluation
    return Evaluation(
        every=wanted.every_steps,
        prompts=min(wanted.prompts, data.eval.n_rows),
        samples=wanted.samples_per_prompt,
        temperature=wanted.temperature,
        threshold=wanted.pass_threshold,
    )


def _economy(spec: RLHFJobSpec) -> Economy:
    price = {p.pool: p for p in spec.prices}
    roles = {"planner": spec.planner.pool, "learner": spec.learner.pool, "decode": spec.decode.pool}
    if spec.reward:
        roles["reward"] = spec.reward.pool
    if spec.prefill.mode != "colocated":
        roles["prefill"] = spec.prefill.pool
    objective, actors = spec.planner.objective, price.get(spec.decode.pool)
    return Economy(
        currency=spec.currency,
        per_hour={role: _per_hour(price.get(pool)) for role, pool in roles.items()},
        objective=objective.type,
        hour_worth=objective.per_hour if isinstance(objective, ValueOfTime) else 0.0,
        weight=objective.weight if isinstance(objective, Lambda) else 0.0,
        parked_share=actors.parked_share if actors else 1.0,
    )


def _per_hour(price: PriceSpec | None) -> float | None:
    return price.per_hour if price else None
