"""Wall seconds to simulate RLHFless's setting: 20 seeds, 3 epochs, all policies, two processes."""

from __future__ import annotations

import time

from benchmarks.harness import Measured
from benchmarks.simulated import SEEDS, WORKERS, load
from services.planner.simulate.many import run_all


def measure() -> Measured:
    """Once; the table has what came out."""
    inputs = load("rlhfless-3b-gsm8k")
    began = time.monotonic()
    found = run_all(inputs, seeds=SEEDS, workers=WORKERS)
    seconds = time.monotonic() - began
    rows = [
        (
            name,
            found.ratio(name, "decode_seconds").words(),
            found.ratio(name, "decoding").words(),
            found.ratio(name, "dollars").words(),
            found.oracle_share(name).words(),
        )
        for name in found.names
    ]
    columns = ("policy", "decoding, of static", "GPU-seconds", "dollars", "oracle share")
    return Measured(seconds, columns, rows)
