"""What every hot store keeps to: the fake and the real one alike."""

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest

from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.embedded import EmbeddedServers
from ebbtide.adapters.valkey import open_hot
from ebbtide.errors import NotFound
from ebbtide.ports import Hot
from ebbtide.testing.hot import FakeHot
from ebbtide.wire import (
    Dispatch,
    Journal,
    JournalRef,
    PolicyRef,
    SampleKey,
    Span,
    pack_floats,
    pack_ints,
    unpack_ints,
)

TTL = 0.3
POLICY = PolicyRef(n=1, attempt=1, digest="d")
_UIDS = itertools.count()


@pytest.fixture
def journal_ttl() -> float:
    """Longer than any test."""
    return 600.0


@pytest.fixture(params=["fake", "valkey"])
async def hot(request: pytest.FixtureRequest, journal_ttl: float) -> AsyncIterator[Hot]:
    if request.param == "fake":
        yield FakeHot(clock=SystemClock(), journal_ttl=journal_ttl)
        return
    servers: EmbeddedServers = request.getfixturevalue("servers")
    password = servers.credentials.valkey
    async with open_hot(servers.valkey_url, password=password, journal_ttl=journal_ttl) as store:
        yield store


@pytest.fixture
def key() -> SampleKey:
    return SampleKey(job_uid=f"job-{next(_UIDS)}", step_issued=0, group=0, index=0)


def ref(key: SampleKey, n_tokens: int, seq: int = 0) -> JournalRef:
    return JournalRef(key=key, dispatch=Dispatch(1, 1, seq), n_tokens=n_tokens)


def chunk(start: int, end: int) -> Journal:
    numbers = range(start, end)
    return Journal(start, pack_ints(numbers), pack_floats(numbers), (Span(start, end, POLICY),))


async def tokens(hot: Hot, where: JournalRef) -> list[int]:
    return [int(t) for c in await hot.journal(where) for t in unpack_ints(c.tokens)]


async def test_a_journal_reads_back_in_order(hot: Hot, key: SampleKey) -> None:
    await hot.append([(ref(key, 3), chunk(0, 3))])
    await hot.append([(ref(key, 5), chunk(3, 5))])
    assert await tokens(hot, ref(key, 5)) == [0, 1, 2, 3, 4]
    assert await hot.journal(ref(key, 3)) == [chunk(0, 3)]


async def test_journals_of_two_dispatches_are_apart(hot: Hot, key: SampleKey) -> None:
    one, two = ref(key, 2, seq=1), ref(key, 3, seq=2)
    await hot.append([(one, chunk(0, 2)), (two, chunk(0, 3))])
    assert await tokens(hot, one) == [0, 1]
    assert await tokens(hot, two) == [0, 1, 2]


async def test_a_repeated_append_changes_nothing(hot: Hot, key: SampleKey) -> None:
    for _ in range(2):
        await hot.append([(ref(key, 3), chunk(0, 3)), (ref(key, 5), chunk(3, 5))])
    assert await tokens(hot, ref(key, 5)) == [0, 1, 2, 3, 4]


async def test_a_missing_journal_or_a_gap_is_not_found(hot: Hot, key: SampleKey) -> None:
    with pytest.raises(NotFound):
        await hot.journal(ref(key, 1))
    await hot.append([(ref(key, 5), chunk(3, 5))])
    with pytest.raises(NotFound):
        await hot.journal(ref(key, 5))


async def test_a_watermark_past_the_end_is_not_found(hot: Hot, key: SampleKey) -> None:
    await hot.append([(ref(key, 3), chunk(0, 3))])
    with pytest.raises(NotFound, match="3 of 4"):
        await hot.journal(ref(key, 4))


async def test_a_forgotten_journal_is_gone(hot: Hot, key: SampleKey) -> None:
    await hot.append([(ref(key, 3), chunk(0, 3))])
    await hot.forget([ref(key, 3), ref(key, 3, seq=9)])
    await hot.forget([])
    with pytest.raises(NotFound):
        await hot.journal(ref(key, 3))


@pytest.mark.parametrize("journal_ttl", [TTL])
async def test_a_journal_outlives_its_last_append_by_its_time_to_live(
    hot: Hot, key: SampleKey
) -> None:
    await hot.append([(ref(key, 3), chunk(0, 3))])
    await asyncio.sleep(2 * TTL)
    with pytest.raises(NotFound):
        await hot.journal(ref(key, 3))


async def test_values_are_set_and_expire(hot: Hot, key: SampleKey) -> None:
    await hot.put(key.job_uid, b"value", ttl=600.0)
    assert await hot.get(key.job_uid) == b"value"
    await hot.put(key.job_uid, b"value", ttl=TTL)
    await asyncio.sleep(2 * TTL)
    assert await hot.get(key.job_uid) is None
