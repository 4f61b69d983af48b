"""Runs both sides and compares."""

from __future__ import annotations

import json
import tempfile
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.harness import Measured
from benchmarks.peer import Peer
from benchmarks.ppo_parity import our_side
from benchmarks.ppo_parity.rollouts import CASES, TEMPERATURE, Arrays, Case, check_active, make
from services.learner.engine.gang import Gang, join

TORCHRL = Peer("torchrl-0.14.1", Path(__file__).parents[1] / "torchrl-requirements.txt")
LIMITS = (60, 1_000_000)
"""Padded tokens of a micro-batch: several, and all in one."""
FIGURES = ("advantages", "targets", "loss", "value_loss", "policy_gradient", "critic_gradient")
NOTICED = 1e-2
"""A planted error must make at least one of its figures differ by more than this."""


def measure() -> Measured:
    """Return the largest relative difference; NaN if a planted error was not noticed."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        gang = join(0, 1, f"file://{folder}/alone", device="cpu", timeout=60)
        try:
            return _measure(gang, folder)
        finally:
            gang.leave()


def _measure(gang: Gang, folder: Path) -> Measured:
    data = make()
    for case in CASES:
        check_active(data, case)
    np.savez(folder / "rollouts.npz", temperature=np.float32(TEMPERATURE), **data)  # type: ignore[arg-type] # allow_pickle
    (folder / "cases.json").write_text(json.dumps([asdict(case) for case in CASES]))
    TORCHRL.run(Path(__file__).with_name("torchrl_side.py"), folder, timeout=900)
    theirs = [dict(np.load(folder / f"torchrl-{number}.npz")) for number in range(len(CASES))]
    rows: list[list[object]] = []
    worst = 0.0
    for case, peer in zip(CASES, theirs, strict=True):
        for limit in LIMITS:
            found = differences(our_side.compute(gang, data, case, limit=limit), peer)
            worst = max(worst, *found)
            rows.append([case.name, f"at most {limit} tokens", *found])
    checks = [planted(gang, data, CASES[0], theirs[0], error) for error in ERRORS]
    rows += [row for row, _ in checks]
    good = all(noticed for _, noticed in checks)
    return Measured(worst if good else float("nan"), ("case", "ours", *FIGURES), rows)


def differences(ours: Arrays, theirs: Arrays) -> list[float]:
    """Of each figure, relative (L2)."""
    assert set(ours) == set(theirs) == set(FIGURES)
    sizes = [float(np.linalg.norm(theirs[name])) for name in FIGURES]
    apart = [float(np.linalg.norm(ours[name] - theirs[name])) for name in FIGURES]
    return [off / size for off, size in zip(apart, sizes, strict=True)]


ERRORS = {
    "values one token late": ("advantages", "targets", "policy_gradient", "critic_gradient"),
    "values not clipped": ("value_loss", "critic_gradient"),
    "clips exchanged": ("policy_gradient",),
}
"""Planted errors and the figures that each must change."""


def planted(
    gang: Gang, data: Arrays, case: Case, theirs: Arrays, error: str
) -> tuple[list[object], bool]:
    """A row of the table, and whether every figure that the error concerns shows it."""
    if error == "values one token late":
        data = {**data, "values": np.roll(data["values"], 1, axis=1)}
    elif error == "values not clipped":
        case = replace(case, value_clip=None)
    else:
        case = replace(case, clip_low=case.clip_high, clip_high=case.clip_low)
    found = differences(our_side.compute(gang, data, case, limit=LIMITS[1]), theirs)
    shown = dict(zip(FIGURES, found, strict=True))
    noticed = all(shown[name] > NOTICED for name in ERRORS[error])
    return [case.name, f"planted: {error}{'' if noticed else ' NOT NOTICED'}", *found], noticed
