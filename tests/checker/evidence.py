"""What the checker knows of one job: ledger records, blobs, and the actors' own logs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ebbtide.parts import of, place
from ebbtide.wire import BatchManifest, Journal, Manifest, Record, Ref, Rollout, decode, digest


class Settled(msgspec.Struct, frozen=True):
    """One line of an actor's log: a terminal fact that the planner has answered for."""

    key: tuple[str, int, int, int, int]
    dispatch: tuple[int, int, int]
    verdict: str
    path: str = ""
    digest: str = ""


@dataclass(frozen=True)
class Evidence:
    """All that is known of one job. Blobs are read late, through `blob`."""

    job_uid: str
    records: Sequence[Record]
    settled: Sequence[Settled]
    blobs: Mapping[str, bytes]

    def manifest(self, ref: Ref) -> Manifest:
        """A checkpoint's manifest."""
        return decode(self.blobs[ref.path], Manifest)

    def batch(self, ref: Ref) -> BatchManifest | None:
        """A frozen batch, if the blob is there and is what the ledger says."""
        data = self.blobs.get(ref.path)
        return decode(data, BatchManifest) if data and digest(data) == ref.digest else None

    def given(self, ref: Ref) -> Journal | None:
        """What a turn begins from, if the blob is there and is what the ledger says."""
        data = self.blobs.get(ref.path)
        return decode(data, Journal) if data and digest(data) == ref.digest else None

    def rollout(self, ref: Ref) -> Rollout | None:
        """A rollout, if the blob is there and is what the ledger says."""
        data = of(self.blobs.get(place(ref.path)[0], b""), ref)
        return decode(data, Rollout) if data and digest(data) == ref.digest else None
