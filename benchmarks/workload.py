"""What the benchmarks sample: the demonstration's warm-started model and its prompts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks.stack import ROOT, environment
from ebbtide import ledger, paths
from ebbtide.wire import Accepted


def reversal(folder: Path) -> tuple[Path, Path]:
    """The model's folder, and a JSONL file of prompts with their answers.

    They come from the demonstration, which keeps its warm-started model in the user's cache;
    the first time this takes as long as the warm start.
    """
    out = folder / "demo"
    subprocess.run(
        [sys.executable, "-m", "ebbtide.demo", "--steps", "1", "--out", str(out)],
        check=True,
        cwd=ROOT,
        env=environment(),
        stdout=sys.stderr,
    )
    material = (out / "material").resolve()
    return material / "model", material / "prompts.jsonl"


def lengths(blobs: Path, job_uid: str) -> Sequence[int]:
    """Answer lengths in tokens of all accepted rollouts of a job."""
    files = sorted((blobs / paths.segments(job_uid)).glob("*.seg"))
    records = [r for file in files for r in ledger.decode_segment(file.read_bytes()).records]
    return [record.n_tokens for record in records if isinstance(record, Accepted)]
