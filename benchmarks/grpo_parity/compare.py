"""Runs both sides and compares."""

from __future__ import annotations

import multiprocessing as mp
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks import trl
from benchmarks.grpo_parity import our_side
from benchmarks.grpo_parity.rollouts import Case, cases, save_cases, save_models, save_rollouts
from benchmarks.harness import Measured
from services.learner.engine.gang import Gang, join

Result = Mapping[str, NDArray[Any]]
LIMITS = (60, our_side.WHOLE)
NOTICED = 1e-2
"""A mask that is off by one must differ by more than this."""
OURSELVES = 1e-5
"""Ranks and micro-batches may differ by this."""


def measure() -> Measured:
    """GRPO in TRL's aggregations, with and without KL."""
    return compare(cases())


def compare(wanted: Sequence[Case]) -> Measured:
    """Return the largest relative difference from TRL; NaN if a check on the check failed.

    The first two cases are also those of the checks: a planted error, and two ranks.
    """
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        gang = join(0, 1, f"file://{folder}/alone", device="cpu", timeout=60)
        try:
            return _measure(gang, folder, wanted)
        finally:
            gang.leave()


def _measure(gang: Gang, folder: Path, wanted: Sequence[Case]) -> Measured:
    data = _prepare(gang, folder, wanted)
    trl.run(Path(__file__).with_name("trl_side.py"), folder, timeout=900)
    rows: list[list[object]] = []
    worst = 0.0
    for case in wanted:
        theirs = np.load(folder / f"trl-{case.name}.npz")
        for limit in LIMITS:
            ours = our_side.compute(gang, folder, data, case, limit=limit)
            loss, gradient = differences(ours, theirs)
            worst = max(worst, loss, gradient)
            where = "one batch" if limit == our_side.WHOLE else f"micro-batches of {limit}"
            rows.append([case.name, where, float(theirs["loss"]), loss, gradient])
    checks = [_planted(gang, folder, data, wanted[0]), _two_ranks(gang, folder, data, wanted[1])]
    good = all(ok for _, ok in checks)
    columns = ("case", "ours", "loss of TRL", "loss differs", "gradient differs")
    rows += [row for row, _ in checks]
    return Measured(worst if good else float("nan"), columns, rows)


def differences(ours: Result, theirs: Result) -> tuple[float, float]:
    """Relative difference of the loss, and of the gradient (L2): whole, or of one tensor.

    A tensor counts by itself if it holds at least a thousandth of the gradient; below that
    rounding rules (the gradient of a key's bias is zero but for rounding).
    """
    loss = abs(float(ours["loss"]) - float(theirs["loss"])) / abs(float(theirs["loss"]))
    names = [name for name in theirs if name != "loss"]
    assert {n for n in ours if n != "loss"} == set(names)
    off = {n: float(np.linalg.norm(ours[n] - theirs[n])) for n in names}
    size = {n: float(np.linalg.norm(theirs[n])) for n in names}
    total = float(np.linalg.norm(list(size.values())))
    whole = float(np.linalg.norm(list(off.values()))) / total
    return loss, max(whole, *(off[n] / size[n] for n in names if size[n] > 1e-3 * total))


def _prepare(gang: Gang, folder: Path, wanted: Sequence[Case]) -> dict[str, NDArray[Any]]:
    """Write models, cases and rollouts; raise unless both clip sides are active."""
    save_models(folder)
    save_cases(folder, wanted)
    save_rollouts(folder)
    draft = dict(np.load(folder / "rollouts.npz"))
    current = our_side.logprobs(gang, folder, draft, wanted[0])
    save_rollouts(folder, current)
    data = dict(np.load(folder / "rollouts.npz"))
    ratio = np.exp(current - data["old_per_token_logps"])[data["completion_mask"] == 1]
    sign = np.repeat(data["advantages"], data["completion_mask"].sum(1))
    assert ((ratio < 0.8) & (sign < 0)).mean() > 0.02, "no token at the lower clip"
    assert ((ratio > 1.28) & (sign > 0)).mean() > 0.02, "no token at the upper clip"
    return data


def _planted(gang: Gang, folder: Path, data: Any, case: Case) -> tuple[list[object], bool]:
    wrong = our_side.compute(gang, folder, data, case, limit=our_side.WHOLE, shift=-1)
    theirs = np.load(folder / f"trl-{case.name}.npz")
    loss, gradient = differences(wrong, theirs)
    noticed = gradient > NOTICED and loss > NOTICED
    word = "planted: mask off by one" + ("" if noticed else " NOT NOTICED")
    return [case.name, word, float(theirs["loss"]), loss, gradient], noticed


def _two_ranks(gang: Gang, folder: Path, data: Any, case: Case) -> tuple[list[object], bool]:
    context = mp.get_context("spawn")
    answers = context.Queue()
    ranks = [
        context.Process(target=_rank, args=(rank, folder, data, case, answers)) for rank in (0, 1)
    ]
    for process in ranks:
        process.start()
    both = [answers.get(timeout=300) for _ in ranks]
    for process in ranks:
        process.join(30)
    alone = our_side.compute(gang, folder, data, case, limit=LIMITS[0])
    found = [differences(result, alone) for result in both]
    loss, gradient = (max(pair) for pair in zip(*found, strict=True))
    row = [case.name, "two ranks against one", float(alone["loss"]), loss, gradient]
    return row, max(loss, gradient) <= OURSELVES


def _rank(rank: int, folder: Path, data: Any, case: Case, answers: Any) -> None:
    torch.set_num_threads(1)
    gang = join(rank, 2, f"file://{folder}/both", device="cpu", timeout=120)
    answers.put(our_side.compute(gang, folder, data, case, limit=LIMITS[0]))
    gang.leave()
