"""Runs both sides and compares."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks import trl
from benchmarks.grpo_parity.compare import NOTICED, Result, differences
from benchmarks.grpo_parity.rollouts import VOCABULARY, save_models
from benchmarks.harness import Measured
from ebbtide.rl.batching import partition
from ebbtide.spec import DpoSpec, ScheduleSpec, TrainingSpec
from ebbtide.wire import PromptRow, pack_ints
from services.learner.core.samples import MicroBatch, Sample, pad, pair_samples
from services.learner.core.schedules import Schedule
from services.learner.engine.dpo import Dpo
from services.learner.engine.gang import Gang, join
from services.learner.engine.optimiser import Optimiser
from services.learner.engine.policy import load_policy

BETAS = (0.1, 1.0)
LIMITS = (40, 1_000_000)
PAIRS = 9

Pair = dict[str, list[int]]


def measure() -> Measured:
    """Return the largest relative difference from TRL; NaN if swapped pairs go unnoticed."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        gang = join(0, 1, f"file://{folder}/alone", device="cpu", timeout=60)
        try:
            return _measure(gang, folder)
        finally:
            gang.leave()


def _measure(gang: Gang, folder: Path) -> Measured:
    save_models(folder)
    pairs = _pairs()
    (folder / "pairs.json").write_text(json.dumps({"pairs": pairs, "betas": BETAS}))
    trl.run(Path(__file__).with_name("trl_side.py"), folder, timeout=900)
    rows: list[list[object]] = []
    worst = 0.0
    for beta in BETAS:
        theirs = np.load(folder / f"trl-{beta}.npz")
        for limit in LIMITS:
            loss, gradient = differences(_ours(gang, folder, pairs, beta, limit=limit), theirs)
            worst = max(worst, loss, gradient)
            rows.append([beta, f"micro-batches of {limit}", float(theirs["loss"]), loss, gradient])
    swapped = [
        {**p, "chosen_ids": p["rejected_ids"], "rejected_ids": p["chosen_ids"]} for p in pairs
    ]
    loss, gradient = differences(_ours(gang, folder, swapped, beta, limit=LIMITS[1]), theirs)
    noticed = min(loss, gradient) > NOTICED
    word = "planted: pairs swapped" + ("" if noticed else " NOT NOTICED")
    rows.append([beta, word, float(theirs["loss"]), loss, gradient])
    columns = ("beta", "ours", "loss of TRL", "loss differs", "gradient differs")
    return Measured(worst if noticed else float("nan"), columns, rows)


def _pairs() -> list[Pair]:
    rng = np.random.default_rng(5)

    def tokens(most: int) -> list[int]:
        found: list[int] = rng.integers(2, VOCABULARY, int(rng.integers(1, most))).tolist()
        return found

    return [
        {"prompt_ids": tokens(9), "chosen_ids": tokens(20), "rejected_ids": tokens(20)}
        for _ in range(PAIRS)
    ]


def _ours(gang: Gang, folder: Path, pairs: Sequence[Pair], beta: float, *, limit: int) -> Result:
    policy = load_policy(folder / "policy", gang, mixed_precision=False)
    training = TrainingSpec(total_steps=1)
    schedule = Schedule(ScheduleSpec(), training.learning_rate, 1)
    dpo = Dpo(
        gang=gang,
        policy=policy,
        reference=load_policy(folder / "reference", gang, mixed_precision=False, frozen=True),
        optimiser=Optimiser(policy.module, training, schedule, gang=gang),
        spec=DpoSpec(type="dpo", beta=beta),
    )
    figures = dpo.gradient(
        _batches([s for i, p in enumerate(pairs) for s in _samples(p, i)], limit)
    )
    gradients: dict[str, Any] = {
        name: p.grad.full_tensor().numpy()  # type: ignore[attr-defined] # a DTensor
        for name, p in policy.module.named_parameters()
        if p.grad is not None
    }
    return {"loss": np.float64(figures["loss"]), **gradients}


def _samples(pair: Pair, number: int) -> tuple[Sample, Sample]:
    prompt, chosen, rejected = (
        pack_ints(pair[f"{name}_ids"]) for name in ("prompt", "chosen", "rejected")
    )
    row = PromptRow("p", prompt, "", b"", "", "", completion=chosen, rejected=rejected)
    return pair_samples(row, number)


def _batches(rows: Sequence[Sample], limit: int) -> list[MicroBatch]:
    places, count = partition([len(s.tokens) for s in rows], ranks=1, limit=limit)
    placed = list(zip(rows, places, strict=True))
    return [pad([s for s, at in placed if at == (0, j)]) for j in range(count)]
