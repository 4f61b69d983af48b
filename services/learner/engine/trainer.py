"""All that computes on one rank, assembled from the job's spec."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ebbtide.spec import GrpoSpec, RLHFJobSpec
from services.learner.core.progress import Progress
from services.learner.core.samples import MicroBatch
from services.learner.core.schedules import Schedule
from services.learner.engine.checkpoint import read_shards, write_shards
from services.learner.engine.gang import Gang
from services.learner.engine.grpo import Grpo
from services.learner.engine.optimiser import Optimiser
from services.learner.engine.policy import Policy, load_policy
from services.learner.engine.publishing import Content, collect
from services.learner.engine.sft import Sft
from services.learner.engine.trial import shared_width

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Work:
    """What this rank computes in one Learn: GRPO micro-batches, or supervised updates."""

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
        policy: Policy,
        optimiser: Optimiser,
        algorithm: Grpo | Sft,
        dtype: torch.dtype,
        shared_width: int = 0,
    ) -> None:
        self.gang = gang
        self.shared_width = shared_width
        """Hidden size of a model that may read shared rows; 0: it may not."""
        self._policy = policy
        self._optimiser = optimiser
        self._algorithm = algorithm
        self._dtype = dtype

    @property
    def counts(self) -> tuple[int, int]:
        """Updates so far, and how many of them were skipped."""
        return self._optimiser.updates, self._optimiser.skipped

    def learn(self, work: Work) -> dict[str, float]:
        """Update the parameters; return the metrics."""
        if isinstance(self._algorithm, Grpo):
            return self._algorithm.learn(work.batches)
        return self._algorithm.learn(work.updates)

    def content(self) -> Content:
        """Return what is to be published."""
        return collect(self._policy, self.gang, dtype=self._dtype)

    def save(self, folder: Path) -> None:
        """Write this rank's shards into `folder`, which must be new."""
        write_shards(folder, self._policy.module, self._optimiser)

    def restore(self, folder: Path, progress: Progress) -> None:
        """Take parameters and optimiser from the shards in `folder`, counters from `progress`."""
        read_shards(folder, self._policy.module, self._optimiser)
        self._optimiser.updates = progress.updates
        self._optimiser.skipped = progress.skipped
        if progress.rng:
            torch.set_rng_state(torch.frombuffer(bytearray(progress.rng), dtype=torch.uint8))


def rng_state() -> bytes:
    """State of torch's generator on the CPU."""
    return torch.get_rng_state().numpy().tobytes()


def build_trainer(spec: RLHFJobSpec, gang: Gang, model: Path) -> Trainer:
    """Load `model` and build the job's algorithm around it; raises Refused."""
    torch.manual_seed(spec.seed)
    mixed = spec.learner.mixed_precision
    policy = load_policy(model, gang, mixed_precision=mixed)
    optimiser = Optimiser(policy.module, spec.training, schedule_of(spec), gang=gang)
    algorithm: Grpo | Sft = Sft(gang=gang, policy=policy, optimiser=optimiser)
    if isinstance(spec.algorithm, GrpoSpec):
        frozen = spec.algorithm.kl_coefficient > 0
        algorithm = Grpo(
            gang=gang,
            policy=policy,
            reference=load_policy(model, gang, mixed_precision=mixed, frozen=True)
            if frozen
            else None,
            optimiser=optimiser,
            algorithm=spec.algorithm,
            training=spec.training,
        )
    share = spec.learner.share_prompts and isinstance(spec.algorithm, GrpoSpec)
    return Trainer(
        shared_width=shared_width(policy, gang.device, coarse=mixed) if share else 0,
        gang=gang,
        policy=policy,
        optimiser=optimiser,
        algorithm=algorithm,
        dtype=DTYPES[spec.model.dtype],
    )


def schedule_of(spec: RLHFJobSpec) -> Schedule:
    """Learning-rate schedule over all updates of the job."""
    training, algorithm = spec.training, spec.algorithm
    each = (
        training.updates_per_batch
        if isinstance(algorithm, GrpoSpec)
        else algorithm.updates_per_step
    )
    return Schedule(training.schedule, training.learning_rate, training.total_steps * each)
