"""Read evidence straight from the blob folder and the actors' own fsynced logs.

It shares the wire types and the ledger's framing with ebbtide, and no code of any service.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from ebbtide import ledger, paths
from tests.checker.evidence import Evidence, Settled


class Folder(Mapping[str, bytes]):
    """Blobs of a local store, by path."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def __getitem__(self, path: str) -> bytes:
        try:
            return (self._root / path).read_bytes()
        except FileNotFoundError:
            raise KeyError(path) from None

    def __iter__(self) -> Iterator[str]:
        files = (file for file in self._root.rglob("*") if file.is_file())
        return (str(file.relative_to(self._root)) for file in files)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def read(root: Path, job_uid: str, audits: Sequence[Path]) -> Evidence:
    """Evidence of job `job_uid` in the blob folder `root`, with the actors' logs `audits`."""
    records = [record for segment in chain(root, job_uid) for record in segment.records]
    settled = [line for audit in audits for line in settled_lines(audit.read_bytes())]
    mine = [line for line in settled if line.key[0] == job_uid]
    return Evidence(job_uid, records, mine, Folder(root))


def chain(root: Path, job_uid: str) -> list[ledger.Segment]:
    """The whole ledger; raises Corrupt at a damaged segment, ValueError at a hole."""
    files = sorted((root / paths.segments(job_uid)).glob("*.seg"))
    segments = [ledger.decode_segment(file.read_bytes()) for file in files]
    if [segment.slot for segment in segments] != list(range(len(segments))):
        raise ValueError(f"the ledger of {job_uid} has a hole")
    return segments


def settled_lines(data: bytes) -> list[Settled]:
    """Whole lines of an actor's log; a torn last line was never acted upon."""
    whole = data[: data.rfind(b"\n") + 1]
    return [msgspec.json.decode(line, type=Settled) for line in whole.splitlines()]
