"""Runs both sides in turns and compares."""

from __future__ import annotations

import json
import multiprocessing as mp
import tempfile
from pathlib import Path

import numpy as np

from benchmarks import trl
from benchmarks.harness import Measured
from benchmarks.learner_throughput import our_side, work

JUDGED = "packed"


def measure() -> Measured:
    """Return our response tokens per second over TRL's; NaN if our memory grew by more."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        work.save(folder)
        tokens = int(np.load(folder / "rollouts.npz")["completion_mask"].sum())
        ours = {layout: _ours(folder, layout) for layout in our_side.LAYOUTS}
        theirs = _theirs(folder)
    padded = work.ROWS * (work.PROMPT + work.LIMIT)
    rows = [
        (name, tokens / seconds, mib, positions)
        for name, (seconds, mib, positions) in {**ours, "TRL": (*theirs, padded)}.items()
    ]
    seconds, mib, _ = ours[JUDGED]
    ratio = theirs[0] / seconds if mib <= theirs[1] else float("nan")
    return Measured(ratio, ("layout", "tokens/s", "MiB more", "positions"), rows)


def _ours(folder: Path, layout: str) -> tuple[float, float, int]:
    context = mp.get_context("spawn")
    answers = context.Queue()
    process = context.Process(target=our_side.run, args=(folder, layout, answers))
    process.start()
    found: tuple[float, float, int] = answers.get(timeout=300)
    process.join(30)
    return found


def _theirs(folder: Path) -> tuple[float, float]:
    script = Path(__file__).with_name("trl_side.py")
    said = trl.run(script, folder, str(work.TRL_ROWS), str(work.UPDATES), timeout=600)
    last = json.loads(said.splitlines()[-1])
    return last["seconds"], last["mib"]
