"""simulate and whatif: the planner's simulator, which runs as a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer

from ebbtide.cli.show import plain
from ebbtide.client import Client

_SIMULATE = "services.planner.simulate"
_REPLAY = "services.planner.simulate.replay"


def simulate_file(
    file: Path, *, out: Path | None, seeds: int | None, workers: int, quick: bool, as_json: bool
) -> None:
    """Run a scenario; ends with the simulator's exit code."""
    arguments = [str(file), "--workers", str(workers)]
    arguments += ["--out", str(out)] if out else []
    arguments += ["--seeds", str(seeds)] if seeds is not None else []
    arguments += ["--quick"] if quick else []
    arguments += ["--json"] if as_json else []
    _run(_SIMULATE, arguments)


def what_if(name: str, options: dict[str, Any]) -> None:
    """Replay a recorded job."""
    with Client.from_state() as client:
        job, steps = client.get(name), client.metrics(name)
    _run(_REPLAY, [], json.dumps({"spec": plain(job.spec), "steps": steps, "options": options}))


def _run(module: str, arguments: Sequence[str], text: str | None = None) -> None:
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, input=text, text=True, check=False)  # noqa: S603 - our own module
    if done.returncode:
        raise typer.Exit(done.returncode)
