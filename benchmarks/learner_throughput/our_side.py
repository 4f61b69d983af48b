"""Updates by the learner's own code, in a process of its own."""

from __future__ import annotations

import resource
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.learner_throughput.work import GROUP, LIMIT, PROMPT, ROWS, TRL_ROWS, UPDATES
from ebbtide.rl.batching import partition
from ebbtide.rl.packing import Kin, partition_packed
from ebbtide.spec import GrpoSpec, ScheduleSpec, TrainingSpec
from services.learner.core.samples import MicroBatch, Sample, Weighting
from services.learner.core.schedules import Schedule
from services.learner.core.sharing import Rows
from services.learner.engine.gang import join
from services.learner.engine.optimiser import Optimiser
from services.learner.engine.policy import load_policy
from services.learner.engine.policy_gradient import PolicyGradient

HIDDEN = 256
LAYOUTS = {
    "rows apart": Rows(),
    "shared prompts": Rows(hidden=HIDDEN, share=True),
    "packed": Rows(hidden=HIDDEN, share=True, fill=True),
}


def run(folder: Path, layout: str, answers: Any) -> None:
    """Put (processor seconds of an update, MiB that memory grew at most, positions computed)."""
    torch.set_num_threads(1)
    gang = join(0, 1, f"file://{folder}/{layout.replace(' ', '-')}", device="cpu", timeout=60)
    policy = load_policy(folder / "policy", gang, mixed_precision=False)
    training = TrainingSpec(total_steps=1)
    schedule = Schedule(ScheduleSpec(), training.learning_rate, 1)
    learner = PolicyGradient(
        gang=gang,
        policy=policy,
        reference=None,
        optimiser=Optimiser(policy.module, training, schedule, gang=gang),
        algorithm=GrpoSpec(type="grpo"),
        training=training,
    )
    batches = _batches(dict(np.load(folder / "rollouts.npz")), LAYOUTS[layout])
    before, times = _peak(), []
    for _ in range(UPDATES):
        began = time.process_time()
        learner.learn(batches)
        times.append(time.process_time() - began)
    answers.put((min(times[1:]), _peak() - before, sum(b.computed for b in batches)))
    gang.leave()


def _batches(data: dict[str, Any], layout: Rows) -> list[MicroBatch]:
    lengths = data["completion_mask"].sum(1)
    weighting = Weighting("token-mean", int(lengths.sum()), ROWS, LIMIT)
    rows = [
        Sample(
            tokens=np.concatenate([data["prompt_ids"][i], data["completion_ids"][i][:n]]),
            chosen=np.arange(PROMPT, PROMPT + n),
            logprobs=np.full(n, -7.6, np.float32),
            advantage=float(data["advantages"][i]),
            weight=weighting.of(int(n)),
            prompt=PROMPT,
        )
        for i, n in enumerate(lengths)
    ]
    sizes, limit = [len(s.tokens) for s in rows], TRL_ROWS * (PROMPT + LIMIT)
    if layout.fill:
        kin = Kin([i // GROUP for i in range(ROWS)], [PROMPT] * ROWS)
        places, count = partition_packed(sizes, ranks=1, limit=limit, kin=kin)
    else:
        places, count = partition(sizes, ranks=1, limit=limit)
    placed = list(zip(rows, places, strict=True))
    return [layout.of([s for s, (_, at) in placed if at == j]) for j in range(count)]


def _peak() -> float:
    """The most memory that this process ever had, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
