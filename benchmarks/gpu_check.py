"""`make gpu-check`: at most ten minutes, and one table that says what of the platform this machine shows.

With a GPU and an environment that has vLLM's GPU build (EBBTIDE_VLLM_PYTHON) its checks use the
device; elsewhere they take their CPU form. What only a GPU or RDMA has is reported as absent.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
BUDGET_SECONDS = 600.0
_END_SECONDS = 90.0
_FABRIC = Path("/sys/class/infiniband")


@dataclass(frozen=True)
class Check:
    """`words` are run in the repository's root; `seconds` at most, of what is left."""

    name: str
    words: Sequence[str]
    seconds: float


@dataclass(frozen=True)
class Row:
    """verdict: holds | fails | late | no time | absent."""

    name: str
    verdict: str
    seconds: float
    note: str


CHECKS = (
    Check("vLLM is installed", ("make", "--no-print-directory", "setup-vllm"), 300),
    Check("transfer by shared memory and NIXL", ("python", "-m", "pytest", "-q", "tests/contract/transfer/test_transfer.py"), 60),
    Check("job with vLLM: weights, moves", ("make", "--no-print-directory", "demo-vllm", "ARGS=--steps 2"), 240),
    Check("engine_parity", ("python", "-m", "benchmarks", "engine_parity"), 150),
    Check("vllm_overhead", ("python", "-m", "benchmarks", "vllm_overhead"), 150),
    Check("migration with KV", ("python", "-m", "benchmarks", "migration"), 60),
)  # fmt: skip


def device() -> str:
    """The GPU's name as its driver tells it; empty: there is none."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return ""
    words = [tool, "--query-gpu=name", "--format=csv,noheader"]
    told = subprocess.run(words, capture_output=True, text=True, timeout=30, check=False)
    return told.stdout.strip().splitlines()[0] if told.returncode == 0 and told.stdout else ""


def capabilities(gpu: str, fabric: Path = _FABRIC) -> list[Row]:
    """What no CPU has; an engine here says that it cannot sleep, whatever the device."""
    rdma = sorted(path.name for path in fabric.glob("*"))
    return [
        Row("GPU", "holds" if gpu else "absent", 0, gpu or "CPU form of every check"),
        Row("RDMA", "holds" if rdma else "absent", 0, ", ".join(rdma) or "NIXL by TCP or memory"),
        Row("quantised KV, NCCL", "no time" if gpu else "absent", 0, "not part of these checks"),
        Row("sleep and wake of vLLM", "absent", 0, "caps.sleeps is false"),
    ]


def run_all(
    checks: Sequence[Check], *, budget: float, run: Callable[[Check, float], Row]
) -> Iterator[Row]:
    """Each in turn, none beyond the budget; `run` gets the seconds that it may take."""
    left = budget
    for check in checks:
        if left < 5:
            yield Row(check.name, "no time", 0, f"of {budget:.0f} s nothing is left")
            continue
        row = run(check, min(left, check.seconds))
        left -= row.seconds
        yield row


def run_one(check: Check, seconds: float) -> Row:
    """Run it, and end all that it started if it takes longer than it may."""
    first = sys.executable if check.words[0] == "python" else check.words[0]
    began = time.monotonic()
    process = subprocess.Popen(
        [first, *check.words[1:]],
        cwd=ROOT,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=seconds)
        verdict = "holds" if process.returncode == 0 else "fails"
    except subprocess.TimeoutExpired:
        process.terminate()  # the demonstration ends its stack at SIGTERM
        output, verdict = _ended(process), "late"
    last = next((line for line in reversed(output.splitlines()) if line.strip()), "")
    return Row(check.name, verdict, time.monotonic() - began, last.strip()[:100])


def _ended(process: subprocess.Popen[str]) -> str:
    try:
        return process.communicate(timeout=_END_SECONDS)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        return ""


def main() -> int:
    """Run, show, and end with 1 if something failed."""
    gpu = device()
    rows = [*capabilities(gpu), *run_all(CHECKS, budget=BUDGET_SECONDS, run=run_one)]
    table = Table("what", "verdict", "seconds", "note")
    for row in rows:
        table.add_row(row.name, row.verdict, f"{row.seconds:.0f}", row.note)
    Console().print(table)
    return 1 if any(row.verdict in ("fails", "late") for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
