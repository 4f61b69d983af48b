"""The ledger on real stores: rival planners, each with its own connection to one folder."""

import asyncio
from pathlib import Path

import pytest

from ebbtide.adapters.blobs import open_blobs
from ebbtide.adapters.clock import SystemClock
from ebbtide.errors import Fenced
from ebbtide.ledger import Ledger, read_chain
from ebbtide.wire import Abandoned, Epoch, Record, SampleKey
from tests.worlds.s3 import BUCKET


@pytest.fixture(params=["file", "s3"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "file":
        return f"file://{tmp_path}"
    request.getfixturevalue("s3")
    return f"s3://{BUCKET}/{tmp_path.name}"


async def plan(url: str, who: int, confirmed: list[Record]) -> None:
    """Take over and write until fenced."""
    blobs = open_blobs(url)
    ledger = Ledger(blobs=blobs, clock=SystemClock(), uid="u", writer=bytes([who] * 16))
    await ledger.take_over(lambda _: None, attempt=1, parent=lambda: None)
    for index in range(15):
        record = Abandoned(SampleKey("u", 0, who, index), "test")
        try:
            await ledger.append([record])
        except Fenced:
            return
        confirmed.append(record)


async def test_rival_planners_leave_one_line_of_history(url: str) -> None:
    confirmed = list[Record]()
    await asyncio.gather(*(plan(url, who, confirmed) for who in range(8)))
    history = [r async for segment in read_chain(open_blobs(url), "u") for r in segment.records]
    assert [r.n for r in history if isinstance(r, Epoch)] == list(range(1, 9))
    kept = [record for record in history if not isinstance(record, Epoch)]
    assert sorted(kept, key=repr) == sorted(confirmed, key=repr)
