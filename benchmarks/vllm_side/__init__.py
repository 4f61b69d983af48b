"""What is measured on vLLM, in the environment that it has to itself."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from ebbtide.interpreters import VLLM, interpreter, sources

_SECONDS = 1200.0


def run(module: str) -> Any:
    """The JSON value that `python -m benchmarks.vllm_side.MODULE` prints last; raises if it fails.

    Raises NotFound, naming `make setup-vllm`, where there is no vLLM.
    """
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": sources()}
    done = subprocess.run(
        [interpreter(VLLM, os.environ), "-m", f"benchmarks.vllm_side.{module}"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=_SECONDS,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module} failed: {done.stderr[-4000:]}")
    return json.loads(done.stdout.splitlines()[-1])
