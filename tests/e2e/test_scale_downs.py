"""A storm of scale-downs on real processes: actors are told to go with work in hand."""

from __future__ import annotations

import random
import time

import pytest

from benchmarks.progress import Progress
from benchmarks.stack import Stack, until
from tests.checker.verdict import Verdict
from tests.e2e.jobs import Material, judged

pytestmark = [pytest.mark.e2e]
ACTORS, SECONDS = 4, 400.0


def storm(stack: Stack, material: Material, *, downs: int, seed: int) -> list[Verdict]:
    """Release one actor after another while samples wait, in one short job after another."""
    rng, done = random.Random(seed), 0  # noqa: S311 - a test must repeat
    verdicts: list[Verdict] = []
    while done < downs:
        spec = material.spec()
        spec["decode"] = {**spec["decode"], "replicas": ACTORS, "drainSeconds": 5}
        job = stack.submit(f"storm-{seed}-{len(verdicts)}", spec)
        progress = Progress(stack.blobs, job.metadata.uid)
        while done < downs and not stack.ended(job.name):
            done += _one_goes(stack, job.name, progress, rng)
        ended = stack.finished(job.name, seconds=SECONDS)
        assert ended.state == "Complete", f"{ended.reason}: {ended.message}"
        verdicts.append(judged(stack, job.metadata.uid))
    return verdicts


def _one_goes(stack: Stack, job: str, progress: Progress, rng: random.Random) -> bool:
    """Name an actor that serves as the one to go; another comes for it."""
    until(
        lambda: (progress.pending and len(_serving(stack, job)) > 1) or stack.ended(job),
        seconds=SECONDS,
        what="two actors with work",
    )
    time.sleep(rng.uniform(0, 0.6))  # the random moment, not a wait for anything
    serving = _serving(stack, job)
    if not progress.pending or not serving:
        return False
    victim = rng.choice(serving)
    stack.release(job, victim, replicas=ACTORS)
    until(
        lambda: victim not in _serving(stack, job) or stack.ended(job),
        seconds=SECONDS,
        what=f"the end of {victim}",
    )
    return True


def _serving(stack: Stack, job: str) -> list[str]:
    return [p.name for p in stack.pods(job, "decode") if p.phase == "Running" and p.ready]


def assert_nothing_is_lost(verdicts: list[Verdict]) -> None:
    assert [verdict.faults() for verdict in verdicts if verdict.faults()] == []
    assert sum(verdict.abandoned for verdict in verdicts) == 0


@pytest.mark.timeout(900)
def test_five_scale_downs_lose_no_sample(stack: Stack, material: Material) -> None:
    assert_nothing_is_lost(storm(stack, material, downs=5, seed=1))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_a_storm_of_a_hundred_scale_downs_loses_no_sample(stack: Stack, material: Material) -> None:
    assert_nothing_is_lost(storm(stack, material, downs=100, seed=2))
