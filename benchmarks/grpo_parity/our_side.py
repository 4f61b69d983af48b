"""Loss and gradient by the learner's own code, on the same rollouts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.grpo_parity.rollouts import LIMIT, ROWS, Case
from ebbtide.rl.batching import partition
from ebbtide.spec import ScheduleSpec, TrainingSpec
from services.learner.core.samples import MicroBatch, Sample, Weighting, pad
from services.learner.core.schedules import Schedule
from services.learner.engine.gang import Gang
from services.learner.engine.optimiser import Optimiser
from services.learner.engine.policy import load_policy
from services.learner.engine.policy_gradient import PolicyGradient

Arrays = Mapping[str, NDArray[Any]]
WHOLE = 1_000_000


def samples(data: Arrays, case: Case, *, shift: int = 0) -> list[Sample]:
    """The rows without padding. `shift` plants a mask that is off by so many tokens."""
    aggregation = case.spec.aggregation
    mask = data["completion_mask"] * (data["tool_mask"] if case.holes else 1)
    weighting = Weighting(aggregation, int(mask.sum()), ROWS, LIMIT)
    found = []
    for i in range(ROWS):
        prompt = data["prompt_ids"][i][data["prompt_mask"][i] == 1]
        length = int(data["completion_mask"][i].sum())
        kept = np.flatnonzero(mask[i])
        chosen = np.clip(kept + shift, 0, length - 1)
        found.append(
            Sample(
                tokens=np.concatenate([prompt, data["completion_ids"][i][:length]]),
                chosen=chosen + len(prompt),
                logprobs=data["old_per_token_logps"][i][kept],
                advantage=float(data["advantages"][i]),
                weight=weighting.of(len(kept)),
            )
        )
    return found


def compute(
    gang: Gang, folder: Path, data: Arrays, case: Case, *, limit: int, shift: int = 0
) -> dict[str, NDArray[Any]]:
    """Loss and full gradients of one case in micro-batches of at most `limit` padded tokens."""
    learner, module = _learner(gang, folder, case)
    batches = _batches(samples(data, case, shift=shift), gang, limit)
    old = [torch.from_numpy(batch.rollout) for batch in batches]
    if case.weight_max is not None:
        sampled = {**data, "old_per_token_logps": data["sampling_per_token_logps"]}
        batches = _batches(samples(sampled, case, shift=shift), gang, limit)
    loss = learner.gradient(batches, old)
    gradients = {
        name: p.grad.full_tensor().numpy()  # type: ignore[attr-defined] # a DTensor
        for name, p in module.named_parameters()
        if p.grad is not None
    }
    return {"loss": np.float64(loss), **gradients}


def logprobs(gang: Gang, folder: Path, data: Arrays, case: Case) -> NDArray[np.float32]:
    """The policy's log-probabilities of all completion tokens, shape (ROWS, LIMIT)."""
    policy = load_policy(folder / "policy", gang, mixed_precision=False)
    whole = {**data, "tool_mask": np.ones_like(data["tool_mask"])}
    batch = pad(samples(whole, case))
    arrays = (torch.from_numpy(a) for a in (batch.tokens, batch.where, batch.targets))
    scored = policy.score(*arrays, temperature=case.temperature).logprobs.detach().numpy()
    found = np.full((ROWS, LIMIT), -4.0, np.float32)
    found[data["completion_mask"] == 1] = scored
    return found


def _batches(rows: list[Sample], gang: Gang, limit: int) -> list[MicroBatch]:
    places, count = partition([len(s.tokens) for s in rows], ranks=gang.size, limit=limit)
    placed = list(zip(rows, places, strict=True))
    return [pad([s for s, at in placed if at == (gang.rank, j)]) for j in range(count)]


def _learner(gang: Gang, folder: Path, case: Case) -> tuple[PolicyGradient, torch.nn.Module]:
    algorithm = case.spec
    training = TrainingSpec(total_steps=1, temperature=case.temperature)
    policy = load_policy(folder / "policy", gang, mixed_precision=False)
    frozen = load_policy(folder / "reference", gang, mixed_precision=False, frozen=True)
    schedule = Schedule(ScheduleSpec(), training.learning_rate, 1)
    learner = PolicyGradient(
        gang=gang,
        policy=policy,
        reference=frozen if algorithm.kl_coefficient else None,
        optimiser=Optimiser(policy.module, training, schedule, gang=gang),
        algorithm=algorithm,
        training=training,
    )
    return learner, policy.module
