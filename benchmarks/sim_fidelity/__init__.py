"""Real steps against the simulator: does a measured profile tell how long they take?

An engine is measured once (`ebbtide profile`). Then jobs run on the local stack, with numbers of
actors and lengths of answers that no measurement saw. Each step is played in simulated time on the
profile's curve: the answers that came, where they were decoded, in the order in which they were
handed out. What comes beside decoding is that of the job's second step. Judged is the median
of |predicted / realised - 1| over whole steps, of the worse engine: the torch one, which computes
here, and the emulated one, which waits as long as its numbers say.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import Measured
from benchmarks.progress import step_reports
from benchmarks.sim_fidelity.jobs import JOBS, SECONDS, WARMUP, Job, measured, spec
from benchmarks.sim_fidelity.replayed import Compared, compared
from benchmarks.stack import Stack, running
from ebbtide.demo import model
from services.planner.core.planning.profile import Profile

COLUMNS = ("job", "step", "predicted s", "realised s", "error", "decode predicted", "decode")


def measure() -> Measured:
    """Measure both engines, run every job, compare."""
    rows: list[Sequence[object]] = []
    worst: list[float] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        model.save(folder / "model", seed=0)
        profiles = {engine: measured(engine, folder) for engine in JOBS}
        with running(folder / "state") as stack:
            for engine, jobs in JOBS.items():
                found = {job: _run(stack, job, folder, profiles[engine]) for job in jobs}
                rows += [row(job, one) for job, steps in found.items() for one in steps]
                worst.append(statistics.median(s.error for steps in found.values() for s in steps))
                rows.append((f"{engine}: median", "", "", "", worst[-1], "", ""))
    return Measured(max(worst), COLUMNS, rows)


def row(job: Job, one: Compared) -> Sequence[object]:
    """For the table."""
    whole = (one.predicted, one.realised, one.error)
    return (job.name, one.step, *whole, one.predicted_decode, one.decode)


def _run(stack: Stack, job: Job, folder: Path, profile: Profile) -> list[Compared]:
    document = spec(job, folder)
    uid = stack.submit(job.name, document).metadata.uid
    ended = stack.finished(job.name, seconds=SECONDS)
    assert ended.state == "Complete", ended.message
    reports = step_reports(stack.blobs, uid)
    return compared(stack.blobs, uid, reports, profile, slots=job.slots, warmup=WARMUP)
