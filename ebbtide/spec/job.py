"""RLHFJob and DecodePool as objects."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from ebbtide.models import Model
from ebbtide.spec.algorithms import (
    Algorithm,
    PolicyGradientSpec,
    PpoSpec,
    RewardModelSpec,
    SupervisedSpec,
)
from ebbtide.spec.base import CURRENCY_PATTERN, Name
from ebbtide.spec.components import CodeReward
from ebbtide.spec.environments import EnvironmentSpec
from ebbtide.spec.roles import (
    BudgetSpec,
    CheckpointSpec,
    DeadlineSpec,
    DecodeSpec,
    LearnerSpec,
    PlannerSpec,
    PrefillSpec,
    PriceSpec,
    RestartSpec,
    RewardSpec,
)
from ebbtide.spec.runtime import RuntimeRef
from ebbtide.spec.training import (
    DatasetSpec,
    EvaluationSpec,
    ModelSpec,
    RecordedSpec,
    TrainingSpec,
)


class RLHFJobSpec(Model):
    """One reinforcement-learning job: everything that shapes it."""

    mode: Literal["sync", "rollout-only"] = Field(
        "sync",
        description="sync: strictly on-policy, step by step. rollout-only: sample and score with the"
        " model as it is; no learner runs, and batches are kept for a job with recorded.",
    )
    seed: int = Field(0, ge=0, le=2**63 - 1, description="Seed of everything that is random.")
    suspend: bool = Field(False, description="Free every pod; resume from the checkpoint.")
    model: ModelSpec = Field(description="The policy.")
    dataset: DatasetSpec = Field(description="Prompts.")
    algorithm: Algorithm = Field(description="How to learn.")
    training: TrainingSpec = Field(description="Sizes and optimiser.")
    evaluation: EvaluationSpec = Field(
        default_factory=lambda: EvaluationSpec(), description="Held-out evaluation."
    )
    recorded: RecordedSpec | None = Field(
        None, description="Learn from another job's batches, without actors and scorers."
    )
    reward: RewardSpec | None = Field(
        None, description="Scoring (required but for sft, dpo and reward-model, or with recorded)."
    )
    environment: EnvironmentSpec | None = Field(
        None, description="What replies to the policy between its turns; unset: one turn."
    )
    decode: DecodeSpec = Field(default_factory=lambda: DecodeSpec(), description="Decode actors.")
    prefill: PrefillSpec = Field(
        default_factory=lambda: PrefillSpec(), description="Where prompts are computed."
    )
    learner: LearnerSpec = Field(default_factory=lambda: LearnerSpec(), description="Learner gang.")
    planner: PlannerSpec = Field(default_factory=lambda: PlannerSpec(), description="Planner.")
    prices: tuple[PriceSpec, ...] = Field((), max_length=64, description="Price per pool.")
    currency: str = Field("USD", pattern=CURRENCY_PATTERN, description="Unit of prices and budget.")
    checkpoint: CheckpointSpec = Field(
        default_factory=lambda: CheckpointSpec(), description="Checkpoints."
    )
    deadlines: DeadlineSpec = Field(
        default_factory=lambda: DeadlineSpec(), description="Time limits by stage."
    )
    budget: BudgetSpec | None = Field(None, description="Limit on cost.")
    backoff_limit: int = Field(
        6, ge=0, le=1000, description="Restarts by failures of the job's own before it fails."
    )
    runtime_ref: RuntimeRef | None = Field(
        None,
        description="On Kubernetes: the ClusterRLHFRuntime that says how pods are made; unset: as the"
        " operator was started with.",
    )
    restart: RestartSpec | None = Field(None, description="Start anew from the last checkpoint.")
    deletion_policy: Literal["FreeGPUs", "KeepAll"] = Field(
        "FreeGPUs",
        description="What becomes of the pods of a job that has ended. FreeGPUs: all go at once."
        " KeepAll: they stay as they are, to be looked at, and cost, until the job is deleted.",
    )
    ttl_seconds_after_finished: float | None = Field(
        None,
        ge=0,
        le=365 * 86400,
        description="The job object is deleted so long after the job ended; unset: never.",
    )

    @property
    def samples(self) -> bool:
        """Whether it has answers sampled and scored; else a planner and a learner are all."""
        return isinstance(self.algorithm, PolicyGradientSpec) and self.recorded is None

    @property
    def programs(self) -> int | None:
        """Number of the first component by which answers are run as programs, if there is one."""
        found = self.reward.components if self.reward else ()
        return next((i for i, one in enumerate(found) if isinstance(one, CodeReward)), None)

    @property
    def learns(self) -> bool:
        """Whether there is a learner; else the policy is the model's own files."""
        return self.mode != "rollout-only"

    @model_validator(mode="after")
    def _coherent(self) -> RLHFJobSpec:
        kind = self.algorithm.type
        supervised = isinstance(self.algorithm, SupervisedSpec)
        if self.samples and self.reward is None:
            raise ValueError(f"reward is required for algorithm.type {kind}: add reward.components")
        if supervised and self.recorded is not None:
            raise ValueError(f"recorded is not for algorithm.type {kind}: remove it")
        if not self.samples:
            self._check_nothing_is_sampled(
                f"algorithm.type {kind}" if supervised else "a job with recorded"
            )
        pools = [price.pool for price in self.prices]
        if len(set(pools)) != len(pools):
            raise ValueError("prices names a pool twice: keep one price per pool")
        if self.budget and not self.prices:
            raise ValueError("budget needs prices: add prices[] or remove budget")
        self._check_mode()
        self._check_evaluation()
        self._check_reward_model()
        self._check_critic()
        self._check_mini_batches()
        self._check_proximal()
        self._check_prefill()
        self._check_forward()
        return self

    def _check_nothing_is_sampled(self, what: str) -> None:
        asked = {"dataset.eval": self.dataset.eval, "environment": self.environment}
        for name, wanted in asked.items():
            if wanted is not None:
                raise ValueError(f"{name} is not for {what}: remove it")

    def _check_mode(self) -> None:
        """A job that never learns has answers to sample, and nothing to adapt."""
        if self.learns:
            return
        if not self.samples:
            what = (
                "a job with recorded" if self.recorded else f"algorithm.type {self.algorithm.type}"
            )
            raise ValueError(
                f"mode rollout-only is not for {what}, which samples nothing: remove it"
            )
        if self.training.lora is not None:
            raise ValueError(
                "training.lora is not for mode rollout-only, which learns nothing: remove it"
            )

    def _check_evaluation(self) -> None:
        """A stored job has every default filled in, so only another value is known to be asked."""
        usual = type(self.evaluation).model_fields["every_steps"].default
        if self.dataset.eval is not None or self.evaluation.every_steps == usual:
            return
        fix = "remove it" if not self.samples else "add dataset.eval, or remove it"
        raise ValueError(f"evaluation.everySteps evaluates nothing without dataset.eval: {fix}")

    def _check_reward_model(self) -> None:
        """It scores whole answers, each in a row of its own, by all its weights."""
        if not isinstance(self.algorithm, RewardModelSpec):
            return
        asked = {
            "training.lora": self.training.lora is not None,
            "learner.packing": self.learner.packing,
            "learner.compile": self.learner.compile,
        }
        for name, wanted in asked.items():
            if wanted:
                raise ValueError(f"{name} is not for algorithm.type reward-model: remove it")

    def _check_critic(self) -> None:
        """The learner tries out on the policy whether rows can be packed."""
        algorithm = self.algorithm
        if isinstance(algorithm, PpoSpec) and algorithm.critic.uri and self.learner.packing:
            raise ValueError(
                "learner.packing is for a critic that begins as the policy: remove"
                " algorithm.critic.uri or packing"
            )

    def _check_mini_batches(self) -> None:
        """A step must have as many answers."""
        parts, algorithm = self.training.mini_batches, self.algorithm
        group = algorithm.group_size if isinstance(algorithm, PolicyGradientSpec) else 0
        if parts > 1 and not group:
            raise ValueError(
                f"training.miniBatches is not for algorithm.type {algorithm.type}: remove it"
                " (algorithm.updatesPerStep says how many updates a step has)"
            )
        answers = self.training.prompts_per_step * group
        if self.recorded is None and parts > max(1, answers):
            raise ValueError(
                f"training.miniBatches ({parts}) is more than a step has answers ({answers}):"
                " lower it"
            )

    def _check_proximal(self) -> None:
        """Ages say how far recorded answers are from the recorder's policy, not from this job's."""
        decoupled = getattr(self.algorithm, "decoupled", None)
        updates = self.training.updates_per_batch * self.training.mini_batches
        if self.recorded is None or decoupled is None or updates == 1:
            return
        if decoupled.proximal == "interpolated":
            raise ValueError(
                "algorithm.decoupled.proximal interpolated goes by the age of answers, which recorded"
                " ones do not have: set it to recomputed"
            )

    def _check_forward(self) -> None:
        """One token of each sample must fit one forward, and a prompt that is not cut in pieces."""
        vllm, longest = self.decode.vllm, self.dataset.max_prompt_tokens
        longest += self.training.max_response_tokens
        most = vllm.max_batched_tokens
        if self.decode.engine != "vllm" or most is None:
            return
        if most < self.decode.slots:
            raise ValueError(
                f"decode.vllm.maxBatchedTokens ({most}) is less than decode.slots"
                f" ({self.decode.slots}): raise it, or take fewer slots"
            )
        if vllm.chunked_prefill or (vllm.chunked_prefill is None and self.decode.device != "cpu"):
            return
        if most < longest:
            raise ValueError(
                f"decode.vllm.maxBatchedTokens ({most}) is less than prompt and response together"
                f" ({longest}): raise it, or set chunkedPrefill on a GPU"
            )

    def _check_prefill(self) -> None:
        """A service must compute what the actors would, and hand it over."""
        if self.prefill.mode == "colocated":
            return
        if self.decode.engine != "torch" and self.prefill.mode == "service":
            raise ValueError("prefill.mode service needs decode.engine torch: no other has KV")
        same = (self.prefill.threads, self.prefill.device) == (
            self.decode.threads,
            self.decode.device,
        )
        if self.decode.reference_mode and not same:
            raise ValueError(
                "decode.referenceMode promises equal bits: give prefill the threads and device"
                " of decode"
            )


class ObjectMeta(Model):
    """Metadata that a user writes."""

    name: Name = Field(description="At most 40 characters: children add suffixes.")
    namespace: Name = Field("default", description="Namespace.")
    labels: dict[str, str] = Field(default_factory=dict, max_length=64, description="Labels.")
    annotations: dict[str, str] = Field(
        default_factory=dict, max_length=64, description="Annotations."
    )


class RLHFJob(Model):
    """What a user submits, as YAML or JSON."""

    api_version: Literal["rlhf.ebbtide.dev/v1alpha1"] = Field(description="API version.")
    kind: Literal["RLHFJob"] = Field(description="Kind.")
    metadata: ObjectMeta = Field(description="Name and labels.")
    spec: RLHFJobSpec = Field(description="The job.")


class DecodePoolSpec(Model):
    """Actors of one job: `replicas` and `release` are patched together by the planner."""

    job: Name = Field(description="The RLHFJob that the pool serves.")
    replicas: int = Field(ge=0, le=4096, description="Wanted actors.")
    release: tuple[Annotated[str, Field(max_length=63)], ...] = Field(
        (), max_length=4096, description="Names of actors that are to go first."
    )


class Condition(Model):
    """A Kubernetes condition."""

    type: str = Field(max_length=64, description="Accepted, Running, Complete, Failed, ...")
    status: Literal["True", "False", "Unknown"] = Field(description="Status.")
    reason: str = Field(max_length=64, description="One word of a closed list.")
    message: str = Field("", max_length=4096, description="For people.")
    last_transition_time: str = Field("", max_length=40, description="RFC 3339.")
    observed_generation: int = Field(0, ge=0, description="Generation that this judges.")


Status = dict[str, Any]
