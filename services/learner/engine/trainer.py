"""All that computes on one rank, assembled from the job's spec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ebbtide.data.sources import local_path
from ebbtide.errors import Refused
from ebbtide.spec import (
    DpoSpec,
    PolicyGradientSpec,
    PpoSpec,
    RewardModelSpec,
    RLHFJobSpec,
    SftSpec,
    SupervisedSpec,
)
from services.learner.core.progress import Course, Progress
from services.learner.core.samples import MicroBatch
from services.learner.core.schedules import Schedule
from services.learner.core.sharing import ROW_EACH, Rows
from services.learner.engine.checkpoint import Part, read_shards, write_shards
from services.learner.engine.critic import load_critic
from services.learner.engine.dpo import Dpo
from services.learner.engine.gang import Gang
from services.learner.engine.optimiser import Optimiser
from services.learner.engine.policy import Policy, Unadapted, load_policy
from services.learner.engine.policy_gradient import PolicyGradient
from services.learner.engine.publishing import Content, collect, collect_base
from services.learner.engine.reward_model import Preferences, ScoreModel, load_score_model
from services.learner.engine.sft import Sft
from services.learner.engine.trial import check_compiled, shared_width

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Work:
    """What this rank computes in one Learn: micro-batches of rollouts, or supervised updates."""

    batches: Sequence[MicroBatch] = ()
    updates: Sequence[Sequence[MicroBatch]] = ()


class Trainer:
    """One rank's model, optimiser and algorithm.

    Its methods are collective, and called from one thread.
    """

    def __init__(
        self,
        *,
        gang: Gang,
        policy: Policy | ScoreModel,
        optimiser: Optimiser,
        algorithm: PolicyGradient | Sft | Dpo | Preferences,
        dtype: torch.dtype,
        rows: Rows = ROW_EACH,
    ) -> None:
        self.gang = gang
        self.rows = rows
        """How this model's samples are laid into rows."""
        self._policy = policy
        self._optimiser = optimiser
        self._algorithm = algorithm
        self._dtype = dtype

    @property
    def counts(self) -> tuple[int, int]:
        """Updates so far, and how many of them were skipped."""
        return self._optimiser.updates, self._optimiser.skipped

    @property
    def course(self) -> Course:
        """What the algorithm has become, beside its tensors."""
        algorithm = self._algorithm
        return algorithm.course if isinstance(algorithm, PolicyGradient) else Course()

    def learn(self, work: Work) -> dict[str, float]:
        """Update the parameters; return the metrics."""
        if isinstance(self._algorithm, PolicyGradient):
            return self._algorithm.learn(work.batches)
        return self._algorithm.learn(work.updates)

    def content(self) -> Content:
        """Return what is to be published."""
        return collect(self._policy, self.gang, dtype=self._dtype)

    @property
    def scale(self) -> float | None:
        """What adapters are multiplied by; None: the weights themselves learn."""
        adapters = self._policy.adapters
        return adapters.scale if adapters else None

    def base(self) -> Content:
        """Return the weights that adapters are added to."""
        assert isinstance(self._policy, Policy)
        return collect_base(self._policy, self.gang, dtype=self._dtype)

    def save(self, folder: Path) -> None:
        """Write this rank's shards into `folder`, which must be new."""
        write_shards(folder, *self._parts())

    def restore(self, folder: Path, progress: Progress) -> None:
        """Take parameters and optimiser from the shards in `folder`, counters from `progress`."""
        read_shards(folder, *self._parts())
        self._optimiser.updates = progress.updates
        self._optimiser.skipped = progress.skipped
        if isinstance(self._algorithm, PolicyGradient):
            self._algorithm.resume(progress)
        if progress.rng:
            torch.set_rng_state(torch.frombuffer(bytearray(progress.rng), dtype=torch.uint8))

    def _parts(self) -> tuple[Part, Part | None]:
        critic = self._algorithm.critic if isinstance(self._algorithm, PolicyGradient) else None
        policy = Part(self._policy.module, self._optimiser)
        return policy, Part(critic.module, critic.optimiser) if critic else None


def rng_state() -> bytes:
    """State of torch's generator on the CPU."""
    return torch.get_rng_state().numpy().tobytes()


def build_trainer(
    spec: RLHFJobSpec, gang: Gang, model: Path, *, backend: str = "inductor"
) -> Trainer:
    """Load `model` and build the job's algorithm around it; raises Refused.

    `backend`: of torch.compile, where the job asks for that.
    """
    torch.manual_seed(spec.seed)
    _check_offload(spec, gang)
    if isinstance(spec.algorithm, RewardModelSpec):
        return _score_trainer(spec, spec.algorithm, gang, model)
    mixed = spec.learner.mixed_precision
    backend = backend if spec.learner.compile else ""
    policy = load_policy(
        model,
        gang,
        mixed_precision=mixed,
        checkpointing=spec.learner.activation_checkpointing,
        offload=spec.learner.cpu_offload,
        backend=backend,
        lora=spec.training.lora,
    )
    if backend:
        check_compiled(policy, gang.device, coarse=mixed)
    optimiser = Optimiser(policy.module, spec.training, schedule_of(spec), gang=gang)
    return Trainer(
        rows=_rows(spec, policy, gang),
        gang=gang,
        policy=policy,
        optimiser=optimiser,
        algorithm=_algorithm(
            spec, gang, model, policy=policy, optimiser=optimiser, backend=backend
        ),
        dtype=DTYPES[spec.model.dtype],
    )


def _check_offload(spec: RLHFJobSpec, gang: Gang) -> None:
    """With device auto only the rank knows what it computes on."""
    if spec.learner.cpu_offload and gang.device.type == "cpu":
        raise Refused(
            "this rank has no GPU, so there is nothing to offload from: remove"
            " learner.cpuOffload, or run the learner where GPUs are",
            field="/learner/cpuOffload",
        )


def _score_trainer(
    spec: RLHFJobSpec, algorithm: RewardModelSpec, gang: Gang, folder: Path
) -> Trainer:
    model = load_score_model(
        folder,
        gang,
        mixed_precision=spec.learner.mixed_precision,
        checkpointing=spec.learner.activation_checkpointing,
        offload=spec.learner.cpu_offload,
    )
    optimiser = Optimiser(model.module, spec.training, schedule_of(spec), gang=gang)
    return Trainer(
        gang=gang,
        policy=model,
        optimiser=optimiser,
        algorithm=Preferences(gang=gang, model=model, optimiser=optimiser, spec=algorithm),
        dtype=DTYPES[spec.model.dtype],
    )


def _rows(spec: RLHFJobSpec, policy: Policy, gang: Gang) -> Rows:
    wanted = spec.learner
    algorithm = spec.algorithm
    share = wanted.share_prompts and isinstance(algorithm, PolicyGradientSpec)
    if isinstance(algorithm, PpoSpec) and algorithm.critic.uri:
        share = False  # the trial asks the policy, and this critic may be another kind of model
    if not share and not wanted.packing:
        return ROW_EACH
    hidden = shared_width(policy, gang.device, coarse=wanted.mixed_precision)
    if not hidden and wanted.packing:
        raise Refused(
            "this model cannot read packed rows: its layers do not see all earlier positions;"
            " leave learner.packing off",
            field="/learner/packing",
        )
    return Rows(hidden=hidden, share=share, fill=wanted.packing) if hidden else ROW_EACH


def _algorithm(
    spec: RLHFJobSpec,
    gang: Gang,
    model: Path,
    *,
    policy: Policy,
    optimiser: Optimiser,
    backend: str,
) -> PolicyGradient | Sft | Dpo:
    algorithm = spec.algorithm
    if isinstance(algorithm, SftSpec):
        return Sft(gang=gang, policy=policy, optimiser=optimiser)
    reference: Policy | None = None
    if isinstance(algorithm, DpoSpec):
        reference = _reference(spec, gang, model, policy, backend=backend)
        return Dpo(
            gang=gang, policy=policy, reference=reference, optimiser=optimiser, spec=algorithm
        )
    assert isinstance(algorithm, PolicyGradientSpec)
    if algorithm.kl_coefficient > 0:
        reference = _reference(spec, gang, model, policy, backend=backend)
    critic = None
    if isinstance(algorithm, PpoSpec):
        folder = local_path(algorithm.critic.uri) if algorithm.critic.uri else model
        critic = load_critic(
            folder,
            gang,
            algorithm.critic,
            spec.training,
            mixed_precision=spec.learner.mixed_precision,
            checkpointing=spec.learner.activation_checkpointing,
            offload=spec.learner.cpu_offload,
            backend=backend,
        )
    return PolicyGradient(
        critic=critic,
        gang=gang,
        policy=policy,
        reference=reference,
        optimiser=optimiser,
        algorithm=algorithm,
        training=spec.training,
    )


def _reference(
    spec: RLHFJobSpec, gang: Gang, model: Path, policy: Policy, *, backend: str
) -> Policy:
    """The initial policy: a copy of its own, or the policy without its adapters."""
    if policy.adapters is not None:
        return Unadapted(policy, policy.adapters)
    learner = spec.learner
    return load_policy(
        model,
        gang,
        mixed_precision=learner.mixed_precision,
        frozen=True,
        offload=learner.cpu_offload,
        backend=backend,
    )


def schedule_of(spec: RLHFJobSpec) -> Schedule:
    """Learning-rate schedule over all updates of the job."""
    training, algorithm = spec.training, spec.algorithm
    each = (
        algorithm.updates_per_step
        if isinstance(algorithm, SupervisedSpec)
        else training.updates_per_batch * training.mini_batches
    )
    return Schedule(training.schedule, training.learning_rate, training.total_steps * each)
