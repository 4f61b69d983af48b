"""A batch that was laid out for several ranks, for one (pure)."""

from __future__ import annotations

import msgspec

from ebbtide.wire import BatchManifest, Row


def on_one_rank(manifest: BatchManifest) -> BatchManifest:
    """The same rows and denominators; each rank's micro-batches come one after the other's."""
    return msgspec.structs.replace(
        manifest,
        rows=tuple(_moved(row, manifest.microbatches) for row in manifest.rows),
        ranks=1,
        microbatches=manifest.ranks * manifest.microbatches,
    )


def _moved(row: Row, microbatches: int) -> Row:
    if row.rank < 0:
        return row
    place = row.rank * microbatches + row.microbatch
    return msgspec.structs.replace(row, rank=0, microbatch=place)
