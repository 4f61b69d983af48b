"""What the benchmarks sample: the demonstration's warm-started model and its prompts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from ebbtide import ledger, paths
from ebbtide.demo import items
from ebbtide.wire import Accepted

PROMPTS = 4096


def reversal(folder: Path) -> tuple[Path, Path]:
    """The model's folder, and a JSONL file of prompts with their answers."""
    from ebbtide.demo import warm  # noqa: PLC0415 - it may train for minutes

    prompts = folder / "prompts.jsonl"
    rows = items.items(seed=7, part=1, count=PROMPTS)
    lines = [{"prompt": row["question"], "answer": row["answer"]} for row in rows]
    prompts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return warm.model(), prompts


def lengths(blobs: Path, job_uid: str) -> Sequence[int]:
    """Answer lengths in tokens of all accepted rollouts of a job."""
    files = sorted((blobs / paths.segments(job_uid)).glob("*.seg"))
    records = [r for file in files for r in ledger.decode_segment(file.read_bytes()).records]
    return [record.n_tokens for record in records if isinstance(record, Accepted)]
