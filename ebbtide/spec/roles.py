"""The roles of a job and what they cost: learner, decode, reward, planner, limits."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator, model_validator

from ebbtide.models import Model
from ebbtide.spec.base import WORD_PATTERN, Name, Seconds, Uri
from ebbtide.spec.components import CodeReward, Component
from ebbtide.spec.templates import fence


class RoleSpec(Model):
    """What every role has."""

    pool: Name = Field("default", description="Node pool whose price applies.")
    pod_template: dict[str, Any] | None = Field(
        None,
        description="On Kubernetes: what is added to the role's pods. metadata: labels, annotations."
        " spec: nodeSelector, tolerations, affinity, topologySpreadConstraints, schedulerName,"
        " runtimeClassName, volumes, and of the container main: env, resources, volumeMounts.",
    )

    @field_validator("pod_template")
    @classmethod
    def _fenced(cls, value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is not None and (fault := fence(value)):
            raise ValueError(fault)
        return value


class LearnerSpec(RoleSpec):
    """The training gang."""

    ranks: int = Field(2, ge=1, le=4096, description="FSDP ranks, one process each.")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where ranks compute.")
    mixed_precision: bool = Field(
        False, description="bfloat16 compute over float32 parameters, where the device has it."
    )
    threads: int = Field(1, ge=1, le=256, description="CPU threads per rank.")
    share_prompts: bool = Field(
        True, description="Compute a prompt once for its siblings, where the model allows it."
    )
    packing: bool = Field(
        False,
        description="Several answers in one row, none seeing another: no padding, and ranks"
        " balanced by tokens. For models whose layers see all earlier positions.",
    )
    activation_checkpointing: bool = Field(
        False, description="Compute each layer again in the backward pass: less memory, more time."
    )
    cpu_offload: bool = Field(
        False,
        description="Parameters, gradients and moments rest in host memory, where AdamW runs too; a"
        " GPU holds what it computes with. Needs a GPU.",
    )
    compile: bool = Field(
        False,
        description="Layers are compiled (torch.compile): the first steps are slow, later ones"
        " faster. Not for reward-model.",
    )

    @model_validator(mode="after")
    def _offloads(self) -> LearnerSpec:
        if self.cpu_offload and self.device == "cpu":
            raise ValueError(
                "cpuOffload needs a GPU: on device cpu all of it is in host memory; remove it"
            )
        return self


class EmulationSpec(Model):
    """The emulated engine: no model, lengths and times from numbers."""

    mean_tokens: float = Field(200.0, gt=0, le=1e6, description="Mean answer length, tokens.")
    sigma: float = Field(0.8, ge=0, le=3, description="Log-normal spread of answer lengths.")
    tpot_ms: float = Field(
        10.0, ge=0, le=1e5, description="Milliseconds per token at batch size 1."
    )
    tpot_per_row_ms: float = Field(
        0.05, ge=0, le=1e4, description="Milliseconds more per token for each further sample."
    )
    prompt_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="Share of the variance of log length that the prompt decides, the same in each"
        " epoch; the rest is each sample's own.",
    )
    prefill_ms_per_token: float = Field(
        0.0,
        ge=0,
        le=1e4,
        description="Milliseconds to compute one prompt token; what runs stands still meanwhile.",
    )
    prefix_cache: bool = Field(
        True, description="An actor computes a prompt once for all samples that it gets of it."
    )


class VllmSpec(Model):
    """The vLLM engine; what does not fit the model is refused with the job, or by the actor."""

    tensor_parallel: int = Field(
        1, ge=1, le=64, description="Devices that one actor's model is split over."
    )
    max_batched_tokens: int | None = Field(
        None, ge=1, le=1 << 20, description="Most tokens of one forward; unset: vLLM's choice."
    )
    chunked_prefill: bool | None = Field(
        None,
        description="Long prompts are computed in pieces, beside samples that decode; unset: so on a"
        " GPU. On a CPU vLLM cannot.",
    )
    gpu_memory_share: float = Field(
        0.9, gt=0, le=1, description="Share of a GPU's memory for weights and KV together."
    )
    cpu_kv_mib: int = Field(
        1024, ge=16, le=1 << 20, description="Memory for KV on a CPU, MiB; a GPU has its share."
    )
    kv_dtype: Literal["auto", "fp8", "fp8_e5m2", "fp8_e4m3"] = Field(
        "auto", description="Of keys and values; auto: that of the weights. Others need a GPU."
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto", description="Of weights and arithmetic; auto: as the policy is published."
    )
    eager: bool | None = Field(
        None, description="Without compilation and recorded graphs; unset: so on a CPU."
    )


class DecodeSpec(RoleSpec):
    """The pool of decode actors."""

    engine: Literal["torch", "vllm", "emulated"] = Field("torch", description="Inference engine.")
    replicas: int = Field(
        2, ge=0, le=4096, description="Actors at the start; with planner.scaling static, always."
    )
    min_replicas: int = Field(0, ge=0, le=4096, description="Never fewer than this.")
    max_replicas: int = Field(64, ge=1, le=4096, description="Never more than this.")
    slots: int = Field(64, ge=1, le=4096, description="Samples decoded at once per actor.")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where actors compute.")
    threads: int = Field(1, ge=1, le=256, description="CPU threads per actor.")
    reference_mode: bool = Field(
        False, description="Fixed shapes: bit-identical results for any actor count (slower)."
    )
    kv_transfer: Literal["shm", "nixl"] | None = Field(
        None,
        description="How keys and values go from process to process: shared memory of one machine, or"
        " NIXL (shared memory, TCP or RDMA, between pods and hosts); where NIXL is missing, shared"
        " memory. Unset: NIXL on Kubernetes, whose pods share no memory; else shared memory.",
    )
    drain_seconds: Seconds = Field(30.0, description="Time an actor has to hand over and leave.")
    profile: Uri | None = Field(
        None,
        description="File with the actors' measured times per token; unset: a built-in curve of"
        " the engine. Either is corrected with what actors report.",
    )
    emulation: EmulationSpec = Field(
        default_factory=lambda: EmulationSpec(), description="Numbers of the emulated engine."
    )
    vllm: VllmSpec = Field(
        default_factory=lambda: VllmSpec(), description="Settings of the vLLM engine."
    )

    @model_validator(mode="after")
    def _runs(self) -> DecodeSpec:
        if self.engine != "vllm":
            return self
        if self.reference_mode:
            raise ValueError("referenceMode needs engine torch: vLLM's bits depend on the batch")
        if self.device == "cpu" and self.vllm.kv_dtype != "auto":
            raise ValueError("vllm.kvDtype other than auto needs a GPU: remove it or device: cpu")
        if self.device == "cpu" and self.vllm.chunked_prefill:
            raise ValueError("vllm.chunkedPrefill needs a GPU: remove it or device: cpu")
        return self

    @model_validator(mode="after")
    def _bounds(self) -> DecodeSpec:
        if not self.min_replicas <= self.replicas <= self.max_replicas:
            raise ValueError(
                f"replicas ({self.replicas}) must lie between minReplicas ({self.min_replicas})"
                f" and maxReplicas ({self.max_replicas})"
            )
        return self


class PrefillSpec(RoleSpec):
    """Where prompts are computed: once per job and policy in a service, or in every actor."""

    mode: Literal["colocated", "service", "auto"] = Field(
        "colocated",
        description="colocated: each actor computes its prompts; service: one pod does, for all;"
        " auto: the planner has that pod while it saves more than it costs.",
    )
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where it computes.")
    threads: int = Field(1, ge=1, le=256, description="CPU threads.")
    prefix_rows: int = Field(
        64, ge=1, le=4096, description="Prompts in its engine, for others that begin alike."
    )
    keep_mib: int = Field(
        1024, ge=1, le=1 << 20, description="KV of computed prompts that is kept for more readers."
    )


class RewardSpec(RoleSpec):
    """How answers are scored: the weighted sum of components."""

    components: tuple[Component, ...] = Field(
        min_length=1, max_length=32, description="Each with a weight and a metric of its own."
    )
    replicas: int = Field(1, ge=1, le=256, description="Scorer processes.")
    workers: int = Field(1, ge=1, le=64, description="Killable worker processes per scorer.")
    timeout_seconds: float = Field(
        10.0, gt=0, le=3600, description="Hard limit per sample; the worker is killed at it."
    )
    breaker_errors: int = Field(
        16, ge=1, le=100_000, description="Consecutive errors that stop scoring."
    )
    retries: int = Field(3, ge=0, le=100, description="Tries after an error before it counts.")

    @field_validator("components")
    @classmethod
    def _distinct(cls, value: tuple[Component, ...]) -> tuple[Component, ...]:
        names = [component.name for component in value]
        if len(set(names)) != len(names):
            raise ValueError("two components have one name: metrics could not tell them apart")
        return value

    @model_validator(mode="after")
    def _in_time(self) -> RewardSpec:
        for component in self.components:
            if isinstance(component, CodeReward) and component.wall_seconds >= self.timeout_seconds:
                raise ValueError(
                    f"wallSeconds of {component.name} must be below timeoutSeconds"
                    f" ({self.timeout_seconds}), at which the whole worker is killed"
                )
        return self


class ValueOfTime(Model):
    """Minimise dollars, where time itself has a price."""

    type: Literal["value-of-time"] = Field(description="Dollars plus a price for waiting.")
    per_hour: float = Field(0.0, ge=0, le=1e9, description="Worth of one hour of step time.")


class Lambda(Model):
    """RLHFless (2602.22718): normalised time and cost, weighted."""

    type: Literal["lambda"] = Field(description="Weighted normalised time and cost.")
    weight: float = Field(0.7, ge=0, le=1, description="Weight of time; 1 - weight of cost.")


class PlannerSpec(RoleSpec):
    """How the planner decides."""

    objective: Annotated[ValueOfTime | Lambda, Field(discriminator="type")] = Field(
        default_factory=lambda: ValueOfTime(type="value-of-time"),
        description="What a plan is judged by; reported with every step.",
    )
    prediction: Literal["blend", "ewma", "none"] = Field(
        "blend",
        description="Response lengths: history, prompt and siblings (blend), a moving average per"
        " prompt (ewma, RLHFless), or none.",
    )
    window: int = Field(1, ge=1, le=1000, description="For ewma: epochs in the moving average.")
    assignment: Literal["unequal", "equal-count", "lpt", "round-robin", "top-k"] = Field(
        "unequal", description="How samples are split over actors."
    )
    scaling: Literal["static", "elastic"] = Field(
        "static",
        description="static: decode.replicas. elastic: chosen for each step within minReplicas and"
        " maxReplicas, released early, fewer while the learner works where that pays.",
    )
    migration: Literal["benefit", "tau", "global-cut", "none"] | None = Field(
        None,
        description="Running samples go on elsewhere so that their actor can be released. benefit:"
        " where that saves more than it costs; tau (RLHFless) and global-cut (RLHFuse): as"
        " published, whatever it costs. Unset: benefit where scaling is elastic, else none.",
    )
    tau: float = Field(
        0.7,
        gt=0,
        le=1,
        description="For tau: an actor gives up what is left once this share of its samples ended.",
    )
    parked: int = Field(
        0,
        ge=0,
        le=4096,
        description="With scaling elastic: at most so many actors may sleep instead of being held or"
        " released, where that is cheaper by prices[].parkedShare.",
    )
    hysteresis: float = Field(
        0.05, ge=0, le=1, description="Share that another number of actors must gain."
    )
    horizon_steps: int = Field(
        3, ge=1, le=1000, description="Steps over which starting an actor must pay."
    )

    @model_validator(mode="after")
    def _parks(self) -> PlannerSpec:
        if self.parked and self.scaling != "elastic":
            raise ValueError(
                "parked needs scaling elastic: a static pool is left as it is; set parked to 0"
            )
        return self


Capacity = Literal["on-demand", "spot", "reserved"]


class PriceSpec(Model):
    """What one member (GPU, or process without one) costs; an unlisted pool's price is unknown."""

    pool: Name = Field(description="Node pool.")
    per_hour: float = Field(ge=0, le=1e6, description="Price of one member running, an hour.")
    parked_share: float = Field(
        1.0,
        ge=0,
        le=1,
        description="Share of that price for an actor that sleeps; 1: its GPU is paid for all the same.",
    )
    capacity_type: Capacity | None = Field(
        None,
        description="How the provider sells the pool's nodes, to tell costs apart; unset: unknown.",
    )


class CheckpointSpec(Model):
    """Checkpoints in the blob store."""

    every_steps: int = Field(10, ge=1, le=1_000_000, description="Steps between checkpoints.")
    retain: int = Field(2, ge=1, le=1000, description="Newest ones kept, beside the best.")
    on_suspend: bool = Field(True, description="Save when the job is suspended.")
    verify: bool = Field(True, description="Read back and compare digests before committing.")


class DeadlineSpec(Model):
    """One deadline per stage; unset: none."""

    scheduling_seconds: Seconds | None = Field(None, description="Until every pod is placed.")
    pre_running_seconds: Seconds | None = Field(600.0, description="From placed to first step.")
    step_seconds: Seconds = Field(
        1800.0, description="Per step; samples missing then are abandoned and counted."
    )
    score_seconds: Seconds = Field(
        120.0,
        description="From acceptance to a score; where reward.retries is not 0 it is then asked for"
        " once more, with as much time.",
    )
    learn_seconds: Seconds = Field(3600.0, description="One update.")
    stall_seconds: Seconds = Field(3600.0, description="Without any progress: the job fails.")
    active_seconds: Seconds | None = Field(None, description="The whole job, suspended time not.")


class RestartSpec(Model):
    """A restart that a user asks for."""

    id: str = Field(
        min_length=1,
        max_length=64,
        pattern=WORD_PATTERN,
        description="Any word. Another one than before frees every pod, as suspending does, and"
        " starts the next attempt; the same one again does nothing.",
    )


class BudgetSpec(Model):
    """Money."""

    max_cost: float = Field(gt=0, le=1e9, description="In the unit of the prices.")
    on_exceed: Literal["Suspend", "Fail", "Warn"] = Field("Suspend", description="What then.")
