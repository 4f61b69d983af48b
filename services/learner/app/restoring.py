"""A committed checkpoint, read back into a trainer: no byte is used that was not verified."""

from __future__ import annotations

import hashlib
from pathlib import Path
from tempfile import TemporaryDirectory

from ebbtide.errors import Corrupt, Refused
from ebbtide.ports import Blobs
from ebbtide.wire import Manifest, Ref, decode
from services.learner.app.lane import Lane
from services.learner.core.progress import FILE, Progress
from services.learner.engine.trainer import Trainer


async def read_checkpoint(
    blobs: Blobs, lane: Lane, parent: Ref, *, uid: str
) -> tuple[Manifest, Progress]:
    """The manifest at `parent`, of job `uid`, and the learner's progress, once every file is read.

    Raises NotFound, Refused (another job's) or Corrupt.
    """
    manifest = decode(await blobs.fetch(parent), Manifest)
    if manifest.job_uid != uid:
        raise Refused(f"{parent.path} is a checkpoint of job {manifest.job_uid}")
    kept = None
    for ref in manifest.learner_refs:
        path = await blobs.local(ref)
        if await lane.run(file_digest, path) != ref.digest:
            raise Corrupt(f"{ref.path} is not what the manifest names")
        kept = path if ref.path.endswith(f"/{FILE}") else kept
    if kept is None:
        raise Corrupt(f"{parent.path} names no {FILE}")
    return manifest, decode(kept.read_bytes(), Progress)


async def restore(
    blobs: Blobs,
    lane: Lane,
    trainer: Trainer,
    checkpoint: tuple[Manifest, Progress],
    *,
    staging: Path,
) -> None:
    """Load what `read_checkpoint` verified; all ranks call it together."""
    manifest, progress = checkpoint
    with TemporaryDirectory(dir=staging) as made:
        folder = Path(made)
        for ref in manifest.learner_refs:
            (folder / Path(ref.path).name).symlink_to(await blobs.local(ref))
        await lane.run(trainer.restore, folder, progress)


def file_digest(path: Path) -> str:
    """SHA-256 of a file, hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
