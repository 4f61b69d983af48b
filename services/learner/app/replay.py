"""Recorded rollouts through a fresh learner: `python -m services.learner.app.replay`.

Trains on the batches that an attempt froze, without planner, actors and reward, and writes nothing
into the blob store. With the job's own spec on its number of ranks, one, each policy is the
recorded one bit for bit; with another spec it tells what that would have learnt from the same
answers, whose log-probabilities are then those of another policy (`mismatch_kl` says how far).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ebbtide import paths
from ebbtide.adapters.blobs import open_blobs
from ebbtide.data.sources import local_path
from ebbtide.errors import NotFound
from ebbtide.ports import Blobs
from ebbtide.spec import RLHFJobSpec
from ebbtide.wire import BatchManifest, PolicyRef, decode
from services.learner.app.body import read_spec
from services.learner.app.lane import Lane
from services.learner.app.reading import Reader
from services.learner.core.relayout import on_one_rank
from services.learner.engine.gang import Gang, join
from services.learner.engine.publishing import write_content
from services.learner.engine.trainer import Trainer, build_trainer

_FIGURES = ("loss", "grad_norm", "kl", "entropy", "mismatch_kl", "value_loss")


@dataclass(frozen=True)
class Recorded:
    """Where an attempt's batches lie. The first attempt begins at the job's model."""

    blobs: Blobs
    uid: str
    attempt: int = 1


@dataclass(frozen=True)
class Replayed:
    """One step. `same`: whether it began with the very policy that drew its rollouts."""

    step: int
    same: bool
    stats: dict[str, float]


async def replay(
    recorded: Recorded, spec: RLHFJobSpec, gang: Gang, staging: Path
) -> AsyncIterator[Replayed]:
    """Learn from every recorded batch in order, on one rank; raises NotFound without any."""
    lane = Lane(threads=spec.learner.threads)
    trainer = await lane.run(build_trainer, spec, gang, local_path(spec.model.uri))
    reader = Reader(blobs=recorded.blobs, spec=spec, rank=0, ranks=1, layout=trainer.rows)
    found = await recorded.blobs.list(paths.batches(recorded.uid, recorded.attempt))
    if not found:
        raise NotFound(f"attempt {recorded.attempt} of {recorded.uid} has no batches")
    for path in found:
        manifest = decode(await recorded.blobs.get(path), BatchManifest)
        same = await lane.run(_policy, trainer, manifest, staging) == manifest.base
        work = await reader.work(on_one_rank(manifest), attempt=recorded.attempt)
        yield Replayed(manifest.step, same, await lane.run(trainer.learn, work))


def _policy(trainer: Trainer, manifest: BatchManifest, staging: Path) -> PolicyRef:
    """What this learner would have published in the place of the batch's base."""
    content, base = trainer.content(), manifest.base
    with TemporaryDirectory(dir=staging) as made:
        skeleton = Path(made) / "skeleton"
        skeleton.mkdir()
        folder = Path(made) / "policy"
        index = write_content(folder, content, skeleton, version=base.n, attempt=base.attempt)
    return index.policy


def main() -> int:
    """Print one JSON object per step; returns the exit status."""
    parser = argparse.ArgumentParser(prog="replay", description=__doc__)
    parser.add_argument("spec", type=Path, help="the job's spec as JSON, or another one")
    parser.add_argument("--blobs", required=True, help="URL of the blob store")
    parser.add_argument("--uid", required=True, help="UID of the job that was recorded")
    parser.add_argument("--attempt", type=int, default=1)
    given = parser.parse_args()
    with TemporaryDirectory(prefix="replay-") as made:
        asyncio.run(_print(given, Path(made)))
    return 0


async def _print(given: argparse.Namespace, folder: Path) -> None:
    spec = read_spec(given.spec.read_text())
    blobs = open_blobs(given.blobs, cache=str(folder / "cache"), writable=())
    gang = join(0, 1, f"file://{folder}/meeting", device=spec.learner.device, timeout=60)
    recorded = Recorded(blobs, given.uid, given.attempt)
    async for step in replay(recorded, spec, gang, folder):
        figures = {name: step.stats[name] for name in _FIGURES if name in step.stats}
        line = json.dumps({"step": step.step, "same": step.same, **figures})
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    gang.leave()


if __name__ == "__main__":
    sys.exit(main())
