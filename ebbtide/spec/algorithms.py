"""How to learn: one class per algorithm, each with its paper, and the parts they share."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ebbtide.models import Model
from ebbtide.spec.base import Uri


class KlSpec(Model):
    """How the policy is held near the initial one; klCoefficient says how strongly."""

    place: Literal["loss", "reward"] = Field(
        "loss", description="A term of the loss, or taken off the reward before the baseline."
    )
    estimator: Literal["k1", "k2", "k3"] = Field(
        "k3",
        description="Estimate from samples: -g, g^2 / 2 or exp(g) - g - 1, g = log ref/policy.",
    )
    corrected: bool = Field(
        True,
        description="In the loss: weighted by the probability ratio, so that the gradient is the"
        " KL's own (DeepSeek-V3.2, arXiv 2512.02556).",
    )
    target: float | None = Field(
        None, gt=0, le=100, description="KL per token, nats, that the coefficient adapts to."
    )
    rate: float = Field(
        0.1, gt=0, le=1, description="With a target: largest step is a fifth of this, relative."
    )


class RewardKlSpec(KlSpec):
    """The same, with the defaults of algorithms that put KL into the reward."""

    place: Literal["loss", "reward"] = Field(
        "reward", description="A term of the loss, or taken off the reward before the baseline."
    )
    estimator: Literal["k1", "k2", "k3"] = Field(
        "k1",
        description="Estimate from samples: -g, g^2 / 2 or exp(g) - g - 1, g = log ref/policy.",
    )


class MismatchSpec(Model):
    """Engine and learner at equal weights: corrections of their difference, and the alarm.

    The ratio is learner's over engine's probability: of the token, of the whole answer (sequence),
    or of the answer per token (geometric).
    """

    weight: Literal["none", "token", "sequence", "geometric"] = Field(
        "none", description="Ratio that losses are weighted by (truncated importance sampling)."
    )
    weight_max: float = Field(2.0, ge=1, le=1e6, description="Weights are cut off here.")
    reject: Literal["none", "token", "sequence", "geometric"] = Field(
        "none", description="Ratio by which tokens are left out (weight 0; denominators stay)."
    )
    reject_low: float = Field(0.5, ge=0, le=1, description="Smallest ratio that is kept.")
    reject_high: float = Field(2.0, ge=1, le=1e6, description="Largest ratio that is kept.")
    alarm_kl: float = Field(
        0.05, gt=0, le=100, description="Alarm above this KL(engine, learner) per token, nats."
    )
    alarm_ess: float = Field(
        0.8, ge=0, le=1, description="Alarm below this effective share of samples."
    )


class DecoupledSpec(Model):
    """The policy that sampled, and the one that ratios are clipped against, apart.

    Decoupled PPO (arXiv 2110.00641; AReaL, 2505.24298): each token's loss is weighted by the
    probability of the proximal policy, the learner's at the start of a batch, over that of the
    policy that sampled, and clipped by its ratio to the proximal policy.
    """

    proximal: Literal["recomputed", "interpolated"] = Field(
        "recomputed",
        description="The proximal policy's log-probabilities: computed before the batch's first"
        " update, or read off between sampling and current policy by age, without that pass (A-3PO,"
        " arXiv 2512.06547).",
    )
    weight_max: float = Field(5.0, ge=1, le=1e6, description="Weights are cut off here.")
    max_age: int = Field(
        4,
        ge=0,
        le=1000,
        description="Tokens of a policy so many versions before the batch's are taken; older ones"
        " are refused. With mode sync every token is of the batch's own policy.",
    )


class SoftOverlong(Model):
    """Soft overlong punishment (DAPO, arXiv 2503.14476, equation 13)."""

    type: Literal["soft-overlong"] = Field(description="A falling reward before the limit.")
    weight: float = Field(1.0, gt=0, le=1000, description="Reward lost at maxResponseTokens.")
    buffer_share: float = Field(
        0.2, gt=0, le=1, description="Share of maxResponseTokens over which it grows to that."
    )


class LinearLength(Model):
    """Every token costs alike."""

    type: Literal["linear"] = Field(description="In proportion to the length.")
    weight: float = Field(gt=0, le=1000, description="Reward lost at maxResponseTokens.")


class RelativeLength(Model):
    """Length within the group (Kimi k1.5, arXiv 2501.12599, section 2.3.3).

    From weight / 2 for the shortest of the group to -weight / 2 for the longest; an answer below
    passThreshold gains nothing by being short.
    """

    type: Literal["relative"] = Field(description="By place between shortest and longest.")
    weight: float = Field(1.0, gt=0, le=1000, description="From the shortest to the longest.")
    pass_threshold: float = Field(1.0, description="An answer is right at this reward or above.")


LengthPenalty = Annotated[SoftOverlong | LinearLength | RelativeLength, Field(discriminator="type")]
Aggregation = Literal["token-mean", "sequence-mean", "dr-grpo"]


class PolicyGradientSpec(Model):
    """What all algorithms that learn from their own samples share."""

    type: str = Field(description="Algorithm.")
    group_size: int = Field(8, ge=2, le=1024, description="Samples per prompt.")
    kl_coefficient: float = Field(
        0.0, ge=0, le=10, description="Weight of KL to the frozen initial policy; 0: no reference."
    )
    kl: KlSpec = Field(default_factory=lambda: KlSpec(), description="How that KL is used.")
    entropy_coefficient: float = Field(
        0.0, ge=0, le=10, description="Entropy per token, times this, is taken off the loss."
    )
    aggregation: Aggregation = Field(
        "token-mean", description="How token losses become one number."
    )
    zero_variance: Literal["count", "drop"] = Field(
        "count",
        description="Groups without variance: their tokens stay in the denominator, or not.",
    )
    truncated: Literal["keep", "drop"] = Field(
        "keep",
        description="Answers cut at maxResponseTokens: learnt from, or left out of the loss (their"
        " rewards stay in the group's baseline).",
    )
    length_penalty: LengthPenalty | None = Field(
        None, description="Taken off the reward before the baseline; null: none."
    )
    mismatch: MismatchSpec = Field(
        default_factory=lambda: MismatchSpec(), description="Engine against learner."
    )
    decoupled: DecoupledSpec | None = Field(
        None,
        description="Clip against a proximal policy, weighted against the one that sampled; null:"
        " clipped against the learner's own before the batch, weighted as mismatch says.",
    )

    @model_validator(mode="after")
    def _weighed_once(self) -> PolicyGradientSpec:
        if self.decoupled is not None and self.mismatch.weight != "none":
            raise ValueError(
                "decoupled weighs each token by the ratio that mismatch.weight is of: set"
                " mismatch.weight to none (the bound is decoupled.weightMax)"
            )
        return self

    @model_validator(mode="after")
    def _bounds(self) -> PolicyGradientSpec:
        if self.kl.target is not None and not self.kl_coefficient:
            raise ValueError("kl.target adapts klCoefficient: start it above 0, or remove target")
        if self.kl.place == "reward" and getattr(self, "advantage_scale", "none") != "none":
            raise ValueError(
                "kl.place reward needs advantageScale none: the deviation is that of the rewards"
                " without KL"
            )
        return self


Scale = Literal["group", "none"]


class GrpoSpec(PolicyGradientSpec):
    """Group Relative Policy Optimization (DeepSeekMath, arXiv 2402.03300).

    Dr. GRPO (arXiv 2503.20783) is aggregation dr-grpo with advantageScale none.
    """

    type: Literal["grpo"] = Field(description="GRPO.")
    clip_low: float = Field(0.2, ge=0, lt=1, description="Lower clip of the ratio: 1 - clipLow.")
    clip_high: float = Field(0.2, ge=0, le=10, description="Upper clip of the ratio: 1 + clipHigh.")
    advantage_scale: Scale = Field(
        "none", description="Divide advantages by the group's standard deviation, or not."
    )


class DapoSpec(PolicyGradientSpec):
    """Decoupled clip and dynamic sampling (DAPO, arXiv 2503.14476).

    GRPO with a higher upper clip, token mean, soft overlong punishment; groups without variance
    leave the batch, and with refillRounds other prompts are drawn in their place.
    """

    type: Literal["dapo"] = Field(description="DAPO.")
    clip_low: float = Field(0.2, ge=0, lt=1, description="Lower clip of the ratio: 1 - clipLow.")
    clip_high: float = Field(
        0.28, ge=0, le=10, description="Upper clip of the ratio: 1 + clipHigh."
    )
    advantage_scale: Scale = Field(
        "group", description="Divide advantages by the group's standard deviation, or not."
    )
    zero_variance: Literal["count", "drop"] = Field(
        "drop",
        description="Groups without variance: their tokens stay in the denominator, or not.",
    )
    refill_rounds: int = Field(
        0,
        ge=0,
        le=32,
        description="Dynamic sampling: so often a step draws as many other prompts as it has groups"
        " without variance. Each round costs its sampling and lengthens the step.",
    )
    length_penalty: LengthPenalty | None = Field(
        default_factory=lambda: SoftOverlong(type="soft-overlong"),
        description="Taken off the reward before the baseline; null: none.",
    )


class GspoSpec(PolicyGradientSpec):
    """Group Sequence Policy Optimization (arXiv 2507.18071): one ratio for the whole answer."""

    type: Literal["gspo"] = Field(description="GSPO.")
    clip_low: float = Field(3e-4, ge=0, lt=1, description="Lower clip of the ratio: 1 - clipLow.")
    clip_high: float = Field(
        4e-4, ge=0, le=10, description="Upper clip of the ratio: 1 + clipHigh."
    )
    advantage_scale: Scale = Field(
        "group", description="Divide advantages by the group's standard deviation, or not."
    )
    aggregation: Aggregation = Field(
        "sequence-mean", description="How token losses become one number."
    )


class CispoSpec(PolicyGradientSpec):
    """Clipped importance sampling (CISPO of MiniMax-M1, arXiv 2506.13585).

    The ratio weighs the gradient and is cut off above; no token loses its gradient.
    """

    type: Literal["cispo"] = Field(description="CISPO.")
    clip_high: float = Field(4.0, ge=0, le=100, description="The weight is at most 1 + clipHigh.")
    advantage_scale: Scale = Field(
        "group", description="Divide advantages by the group's standard deviation, or not."
    )


class RlooSpec(PolicyGradientSpec):
    """REINFORCE leave-one-out (arXiv 2402.14740): the baseline is the mean of the others."""

    type: Literal["rloo"] = Field(description="RLOO.")
    clip_low: float = Field(
        0.2, ge=0, lt=1, description="Lower clip of the whole answer's ratio: 1 - clipLow."
    )
    clip_high: float = Field(
        0.2, ge=0, le=10, description="Upper clip of the whole answer's ratio: 1 + clipHigh."
    )
    kl: RewardKlSpec = Field(
        default_factory=lambda: RewardKlSpec(),
        description="How that KL is used.",
    )
    aggregation: Literal["sequence-mean"] = Field(
        "sequence-mean", description="Every answer counts alike, and with all its tokens."
    )


class ReinforceSpec(PolicyGradientSpec):
    """REINFORCE++ (arXiv 2501.03262): advantages are normalised over the whole batch."""

    type: Literal["reinforce-plus-plus"] = Field(description="REINFORCE++.")
    group_size: int = Field(8, ge=1, le=1024, description="Samples per prompt.")
    clip_low: float = Field(0.2, ge=0, lt=1, description="Lower clip of the ratio: 1 - clipLow.")
    clip_high: float = Field(0.2, ge=0, le=10, description="Upper clip of the ratio: 1 + clipHigh.")
    baseline: Literal["none", "group"] = Field(
        "none", description="Taken off first: nothing, or the group's mean (the paper's variant)."
    )
    kl: RewardKlSpec = Field(
        default_factory=lambda: RewardKlSpec(),
        description="How that KL is used; in the reward each token bears what is still to come.",
    )

    @model_validator(mode="after")
    def _baseline(self) -> ReinforceSpec:
        if self.baseline == "group" and self.group_size < 2:
            raise ValueError("baseline group needs groupSize 2 or more: one sample has no mean")
        if self.baseline == "none" and self.zero_variance == "drop":
            raise ValueError("zeroVariance drop needs baseline group: others learn from equal ones")
        return self


class CriticSpec(Model):
    """The model that values every position of an answer; a role of the learner, on its ranks."""

    uri: Uri | None = Field(
        None,
        description="Folder in Hugging Face format, its head left out; unset: the initial policy.",
    )
    learning_rate: float = Field(1e-5, ge=0, le=1, description="AdamW learning rate.")
    value_clip: float | None = Field(
        0.2, gt=0, le=1000, description="A value moves this far in one batch; null: any way."
    )
    warmup_steps: int = Field(
        0, ge=0, le=100_000, description="First steps, in which the critic alone learns."
    )


class PpoSpec(PolicyGradientSpec):
    """Proximal Policy Optimization (arXiv 1707.06347) with generalised advantages (1506.02438)."""

    type: Literal["ppo"] = Field(description="PPO.")
    group_size: int = Field(1, ge=1, le=1024, description="Samples per prompt.")
    clip_low: float = Field(0.2, ge=0, lt=1, description="Lower clip of the ratio: 1 - clipLow.")
    clip_high: float = Field(0.2, ge=0, le=10, description="Upper clip of the ratio: 1 + clipHigh.")
    gamma: float = Field(1.0, gt=0, le=1, description="Discount per token.")
    gae_lambda: float = Field(
        0.95, ge=0, le=1, description="1: what came less the value; 0: one token ahead."
    )
    critic: CriticSpec = Field(default_factory=lambda: CriticSpec(), description="Critic.")
    kl: RewardKlSpec = Field(
        default_factory=lambda: RewardKlSpec(),
        description="How that KL is used; in the reward each token bears its own.",
    )
    zero_variance: Literal["count"] = Field(
        "count", description="There is no group baseline, so no group is without variance."
    )


class SupervisedSpec(Model):
    """What all algorithms that learn from given rows share: no answer is sampled or scored."""

    type: str = Field(description="Algorithm.")
    batch_size: int = Field(16, ge=1, le=65536, description="Rows per update.")
    updates_per_step: int = Field(
        50, ge=1, le=10_000, description="Updates in one step (one message to the learner)."
    )


class SftSpec(SupervisedSpec):
    """Supervised fine-tuning on prompt-completion rows: loss on the completion alone."""

    type: Literal["sft"] = Field(description="Supervised fine-tuning.")


class DpoSpec(SupervisedSpec):
    """Direct Preference Optimization (arXiv 2305.18290) on prompt-chosen-rejected rows."""

    type: Literal["dpo"] = Field(description="DPO.")
    beta: float = Field(
        0.1, gt=0, le=100, description="How strongly the policy is held near the initial one."
    )
    label_smoothing: float = Field(
        0.0, ge=0, lt=0.5, description="Share of pairs that may be the wrong way round (cDPO)."
    )


class RewardModelSpec(SupervisedSpec):
    """A reward model from prompt-chosen-rejected rows (Bradley-Terry, arXiv 2203.02155).

    `model.uri` is a language model, whose body gets one number on top, or such a reward model.
    """

    type: Literal["reward-model"] = Field(description="Pairwise training of a reward model.")
    centring: float = Field(
        0.0,
        ge=0,
        le=10,
        description="Weight of (better + worse)^2, which holds scores near 0 (arXiv 2312.09244).",
    )


Algorithm = Annotated[
    GrpoSpec
    | DapoSpec
    | GspoSpec
    | CispoSpec
    | RlooSpec
    | ReinforceSpec
    | PpoSpec
    | SftSpec
    | DpoSpec
    | RewardModelSpec,
    Field(discriminator="type"),
]
