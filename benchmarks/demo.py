"""What the demonstration gains: three seeds, a control run without learning, a check from outside.

The figure is the smallest gain of held-out reward over the seeds. It does not hold (NaN) if the
control run drifts by more than 0.05, if a sample is lost or doubled, if plain transformers code
disagrees with the last reported reward by more than 0.1 (both are means over sampled answers), or
if a run takes more than six minutes. The seeds begin with an empty cache, so each run has its warm
start in it; the control run finds seed 0's.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.harness import Measured

ROOT = Path(__file__).resolve().parents[1]
SEEDS = (0, 1, 2)
DRIFT, DISAGREEMENT, SECONDS = 0.05, 0.1, 360.0
COLUMNS = ("run", "first", "last", "gain", "plain", "lost", "doubled", "moved", "actors", "seconds")


def measure() -> Measured:
    """Run all; takes about 15 minutes on two cores."""
    with tempfile.TemporaryDirectory() as cache:
        runs = [_run(f"seed {seed}", seed, cache) for seed in SEEDS]
        control = _run("control", SEEDS[0], cache, "--learning-rate", "0")
    sound = abs(control["gain"]) <= DRIFT and all(is_sound(run) for run in [*runs, control])
    gain = min(run["gain"] for run in runs)
    rows = [[run[name] for name in COLUMNS] for run in [*runs, control]]
    return Measured(gain if sound else math.nan, COLUMNS, rows)


def _run(name: str, seed: int, cache: str, *options: str) -> dict[str, Any]:
    out = ROOT / "runs" / f"bench-{name.replace(' ', '-')}"
    command = ["-m", "ebbtide.demo", "--seed", str(seed), "--out", str(out), *options]
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    began = time.monotonic()
    subprocess.run(
        [sys.executable, *command], check=True, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL
    )
    seconds = time.monotonic() - began
    report = json.loads((out / "report.json").read_text())
    first, last = report["eval_reward_first"], report["eval_reward_last"]
    return {
        "run": name,
        "first": first,
        "last": last,
        "gain": last - first,
        "plain": _from_outside(out),
        "lost": report["samples_lost"],
        "doubled": report["samples_doubled"],
        "moved": report["migrations"],
        "actors": f"{report['actors_min']}-{report['actors_max']}",
        "seconds": seconds,
    }


def is_sound(run: Mapping[str, Any]) -> bool:
    """Whether nothing is lost, it took six minutes at most, and plain code agrees."""
    agrees = abs(run["plain"] - run["last"]) <= DISAGREEMENT
    whole = not run["lost"] and not run["doubled"]
    return agrees and whole and run["seconds"] <= SECONDS


def _from_outside(out: Path) -> float:
    """The last policy's held-out reward, by code that knows nothing of the platform."""
    policies = sorted((out / "state" / "blobs").glob("jobs/*/attempts/*/policies/*"))
    last = max(policies, key=lambda folder: (folder.stat().st_mtime, folder.name))
    command = ["-m", "benchmarks.plain_eval", str(last), str(out / "material" / "held-out.jsonl")]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", *command],
        check=True,
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    return float(done.stdout.split()[-1])
