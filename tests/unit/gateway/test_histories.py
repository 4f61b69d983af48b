"""What reading a ledger asks of the blob store."""

from __future__ import annotations

import pytest

from ebbtide import paths
from ebbtide.ledger import encode_segment
from ebbtide.testing.blobs import FakeBlobs
from services.gateway.app.histories import Histories


class CountedBlobs(FakeBlobs):
    """Counts reads."""

    gets = 0

    async def get(self, path: str) -> bytes:
        self.gets += 1
        return await super().get(path)


@pytest.mark.parametrize("new", [0, 1, 6, 100])
async def test_what_is_asked_for_in_vain_is_little_more_than_what_is_new(new: int) -> None:
    blobs = CountedBlobs()
    for slot in range(new):
        await blobs.put(paths.segment("u", slot), encode_segment(slot, bytes(16), []))
    assert (await Histories(blobs=blobs).of("u")).next_slot == new
    assert blobs.gets <= 2 * new + 1
