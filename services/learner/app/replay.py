"""Recorded rollouts through a fresh learner: `python -m services.learner.app.replay`.

Trains on the batches that an attempt froze, without planner, actors and reward, from what that
attempt began with, and writes nothing into the blob store; `--out` keeps what was learnt. With the job's own spec on its number of ranks, one, each policy is the
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
from ebbtide.errors import NotFound, Refused
from ebbtide.ports import Blobs
from ebbtide.spec import RewardModelSpec, RLHFJobSpec
from ebbtide.spec.reading import read_spec
from ebbtide.wire import BatchManifest, PolicyRef, decode
from services.learner.app.lane import Lane
from services.learner.app.lineage import parent_of
from services.learner.app.reading import Reader
from services.learner.app.restoring import read_checkpoint, restore
from services.learner.core.relayout import on_one_rank
from services.learner.engine.gang import Gang, join
from services.learner.engine.publishing import write_content, write_skeleton
from services.learner.engine.trainer import DTYPES, Trainer, build_trainer

_FIGURES = ("loss", "grad_norm", "kl", "entropy", "mismatch_kl", "value_loss")


@dataclass(frozen=True)
class Recorded:
    """Where an attempt's batches lie. It began at the job's model, or at a checkpoint."""

    blobs: Blobs
    uid: str
    attempt: int = 1


@dataclass(frozen=True)
class Replayed:
    """One step. `same`: whether it began with the very policy that drew its rollouts."""

    step: int
    same: bool
    stats: dict[str, float]


@dataclass(frozen=True)
class Replay:
    """A learner of one rank that stands where the attempt began."""

    recorded: Recorded
    spec: RLHFJobSpec
    trainer: Trainer
    lane: Lane
    staging: Path

    async def steps(self) -> AsyncIterator[Replayed]:
        """Learn from every recorded batch in order; raises NotFound without any."""
        blobs, uid, attempt = self.recorded.blobs, self.recorded.uid, self.recorded.attempt
        layout = self.trainer.rows
        reader = Reader(blobs=blobs, spec=self.spec, rank=0, ranks=1, layout=layout)
        found = await blobs.list(paths.batches(uid, attempt))
        if not found:
            raise NotFound(f"attempt {attempt} of {uid} has no batches")
        for path in found:
            manifest = decode(await blobs.get(path), BatchManifest)
            policy = await self.lane.run(_policy, self.trainer, manifest, self.staging)
            work = await reader.work(on_one_rank(manifest), attempt=attempt)
            stats = await self.lane.run(self.trainer.learn, work)
            yield Replayed(manifest.step, policy == manifest.base, stats)

    async def keep(self, folder: Path) -> PolicyRef:
        """Write the present policy into `folder`, which must be new, as a job publishes one."""
        return await self.lane.run(_export, self.trainer, self.spec, folder, self.staging)


async def open_replay(recorded: Recorded, spec: RLHFJobSpec, gang: Gang, staging: Path) -> Replay:
    """Build the learner and bring it to where the attempt began; raises Refused, NotFound.

    NotFound too where the checkpoint that the attempt began from was superseded and is gone.
    """
    lane = Lane(threads=spec.learner.threads)
    trainer = await lane.run(build_trainer, spec, gang, local_path(spec.model.uri))
    parent = await parent_of(recorded.blobs, recorded.uid, recorded.attempt)
    if parent is not None:
        read = await read_checkpoint(recorded.blobs, lane, parent, uid=recorded.uid)
        await restore(recorded.blobs, lane, trainer, read, staging=staging)
    return Replay(recorded, spec, trainer, lane, staging)


def check_out(spec: RLHFJobSpec, folder: Path) -> None:
    """Before anything is learnt; raises Refused."""
    if spec.training.lora is not None:
        raise Refused("--out writes whole weights, and this job trains adapters: leave it out")
    if folder.exists():
        raise Refused(f"{folder} is there already: name a new folder")


def _export(trainer: Trainer, spec: RLHFJobSpec, folder: Path, staging: Path) -> PolicyRef:
    with TemporaryDirectory(dir=staging) as made:
        skeleton = Path(made) / "skeleton"
        write_skeleton(
            skeleton,
            model=local_path(spec.model.uri),
            tokenizer=local_path(spec.model.tokenizer_uri or spec.model.uri),
            chat_template=spec.model.chat_template,
            dtype=DTYPES[spec.model.dtype],
            scores=isinstance(spec.algorithm, RewardModelSpec),
        )
        version = trainer.counts[0]
        index = write_content(folder, trainer.content(), skeleton, version=version, attempt=0)
    return index.policy


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
    parser.add_argument("--attempt", type=int, default=1, help="whose batches; the first one's")
    parser.add_argument("--out", type=Path, help="new folder for the policy that was learnt")
    given = parser.parse_args()
    with TemporaryDirectory(prefix="replay-") as made:
        asyncio.run(_print(given, Path(made)))
    return 0


async def _print(given: argparse.Namespace, folder: Path) -> None:
    spec = read_spec(given.spec.read_text())
    if given.out:
        check_out(spec, given.out)
    blobs = open_blobs(given.blobs, cache=str(folder / "cache"), writable=())
    gang = join(0, 1, f"file://{folder}/meeting", device=spec.learner.device, timeout=60)
    recorded = Recorded(blobs, given.uid, given.attempt)
    learner = await open_replay(recorded, spec, gang, folder)
    async for step in learner.steps():
        figures = {name: step.stats[name] for name in _FIGURES if name in step.stats}
        line = json.dumps({"step": step.step, "same": step.same, **figures})
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    if given.out:
        policy = await learner.keep(given.out)
        sys.stdout.write(f"{json.dumps({'out': str(given.out), 'digest': policy.digest})}\n")
    gang.leave()


if __name__ == "__main__":
    sys.exit(main())
