"""One chain, one writer at a time: claims, zombies, lost answers."""

import asyncio
from collections.abc import Iterable
from random import Random

import pytest

from ebbtide import paths
from ebbtide.errors import Corrupt, Fenced, Refused, Temporary
from ebbtide.ledger import Ledger, encode_segment, read_chain
from ebbtide.testing.blobs import AMBIGUOUS, FAIL, OK, FakeBlobs, random_outcomes
from ebbtide.testing.clock import VirtualClock, run_virtual
from ebbtide.wire import Abandoned, Epoch, Record, SampleKey


def note(index: int) -> Record:
    return Abandoned(SampleKey("u", 0, 0, index), "test")


def ledger(blobs: FakeBlobs, who: int, patience: float = 60.0) -> Ledger:
    return Ledger(
        blobs=blobs, clock=VirtualClock(), uid="u", writer=bytes([who] * 16), patience=patience
    )


async def started(blobs: FakeBlobs, who: int, attempt: int = 1) -> tuple[Ledger, list[Record]]:
    seen: list[Record] = []
    own = ledger(blobs, who)
    await own.take_over(seen.append, attempt=attempt, parent=lambda: None)
    return own, seen


async def written(blobs: FakeBlobs) -> list[Record]:
    return [record async for segment in read_chain(blobs, "u") for record in segment.records]


def epochs(records: Iterable[Record]) -> list[int]:
    return [record.n for record in records if isinstance(record, Epoch)]


def test_a_new_planner_replays_what_the_last_one_wrote() -> None:
    async def scenario() -> None:
        blobs = FakeBlobs()
        first, _ = await started(blobs, 1)
        await first.append([note(1), note(2)])
        second, seen = await started(blobs, 2)
        assert seen == [Epoch(1, 1, 0, None), note(1), note(2), Epoch(2, 1, 2, None)]
        assert second.epoch.n == 2

    run_virtual(scenario())


class Careless(FakeBlobs):
    """Writes over what is there."""

    async def put_if_absent(self, path: str, data: bytes) -> bool:
        await self.put(path, data)
        return True


def test_a_store_that_writes_over_what_is_there_holds_no_ledger() -> None:
    async def scenario() -> None:
        blobs = Careless()
        with pytest.raises(Refused, match="put_if_absent"):
            await started(blobs, 1)

    run_virtual(scenario())


def test_a_zombie_is_fenced_and_leaves_no_trace() -> None:
    async def scenario() -> None:
        blobs = FakeBlobs()
        zombie, _ = await started(blobs, 1)
        await zombie.append([note(1)])
        heir, _ = await started(blobs, 2)
        with pytest.raises(Fenced, match="epoch 1 is over"):
            await zombie.append([note(66)])
        await heir.append([note(2)])
        assert note(66) not in await written(blobs)
        with pytest.raises(AssertionError):
            await zombie.append([note(67)])

    run_virtual(scenario())


def test_of_two_concurrent_claimers_one_survives() -> None:
    async def scenario() -> None:
        blobs = FakeBlobs()
        (one, _), (two, _) = await asyncio.gather(started(blobs, 1), started(blobs, 2))
        assert {one.epoch.n, two.epoch.n} == {1, 2}
        older, newer = sorted((one, two), key=lambda own: own.epoch.n)
        await newer.append([note(1)])
        with pytest.raises(Fenced):
            await older.append([note(2)])

    run_virtual(scenario())


def test_claimers_with_equal_bytes_to_write_are_told_apart() -> None:
    async def scenario() -> None:
        blobs = FakeBlobs()
        one, two = ledger(blobs, 1), ledger(blobs, 2)
        assert await one.claim(attempt=1, parent=None) is not None
        assert await two.claim(attempt=1, parent=None) is None

    run_virtual(scenario())


def test_a_planner_of_an_older_attempt_cannot_claim() -> None:
    async def scenario() -> None:
        blobs = FakeBlobs()
        await started(blobs, 1, attempt=2)
        with pytest.raises(Fenced, match="attempt 1 is over"):
            await started(blobs, 2, attempt=1)

    run_virtual(scenario())


@pytest.mark.parametrize("outcomes", [[FAIL], [AMBIGUOUS], [FAIL, AMBIGUOUS, FAIL]])
def test_a_put_that_fails_or_loses_its_answer_is_settled(outcomes: list[str]) -> None:
    async def scenario() -> None:
        blobs = FakeBlobs()
        own, _ = await started(blobs, 1)
        blobs.outcomes = iter(outcomes)
        await own.append([note(1)])
        await own.append([note(2)])
        assert (await written(blobs))[1:] == [note(1), note(2)]

    run_virtual(scenario())


def test_a_store_that_stays_down_ends_the_ledger() -> None:
    async def scenario() -> None:
        blobs = FakeBlobs()
        own, _ = await started(blobs, 1)
        blobs.outcomes = iter([FAIL] * 10_000)
        with pytest.raises(Temporary):
            await own.append([note(1)])
        assert VirtualClock().now() <= 60
        with pytest.raises(AssertionError):
            await own.append([note(1)])

    run_virtual(scenario())


def test_a_hole_in_the_chain_is_corrupt() -> None:
    async def scenario() -> None:
        blobs = FakeBlobs()
        own, _ = await started(blobs, 1)
        await own.append([note(1)])
        await own.append([note(2)])
        await blobs.delete(paths.segment("u", 1))
        with pytest.raises(Corrupt, match="slot 1"):
            await started(blobs, 2)

    run_virtual(scenario())


def test_damage_is_told_with_the_path_of_its_segment() -> None:
    async def scenario() -> None:
        blobs = FakeBlobs()
        own, _ = await started(blobs, 1)
        await own.append([note(1)])
        path = paths.segment("u", 1)
        whole = await blobs.get(path)
        await blobs.put(path, whole[:-1] + bytes([whole[-1] ^ 1]))
        with pytest.raises(Corrupt, match=f"{path}: ledger record at byte 48 is damaged"):
            await written(blobs)

    run_virtual(scenario())


def test_a_segment_in_a_foreign_slot_is_corrupt() -> None:
    async def scenario() -> None:
        blobs = FakeBlobs()
        await blobs.put(paths.segment("u", 0), encode_segment(1, bytes(16), []))
        with pytest.raises(Corrupt, match="slot 0"):
            await written(blobs)

    run_virtual(scenario())


def test_long_chains_are_read_in_order() -> None:
    async def scenario() -> None:
        blobs = FakeBlobs()
        own, _ = await started(blobs, 1)
        for index in range(100):
            await own.append([note(index)])
        assert (await written(blobs))[1:] == [note(index) for index in range(100)]

    run_virtual(scenario())


@pytest.mark.parametrize("seed", range(20))
def test_planners_that_race_over_a_bad_store_leave_one_line_of_history(seed: int) -> None:
    """What an append confirmed stands in the ledger once; what was fenced stands nowhere."""

    async def scenario() -> None:
        rng = Random(seed)  # noqa: S311
        blobs = FakeBlobs(outcomes=random_outcomes(rng, fail=0.2, ambiguous=0.2))
        confirmed: list[Record] = []
        refused: list[Record] = []

        async def planner(who: int) -> None:
            await asyncio.sleep(rng.uniform(0, 3))
            own, _ = await started(blobs, who)
            for index in range(20):
                record = note(100 * who + index)
                try:
                    await own.append([record])
                except Fenced:
                    refused.append(record)
                    return
                confirmed.append(record)
                await asyncio.sleep(rng.uniform(0, 0.2))

        await asyncio.gather(*(planner(who) for who in range(1, 6)))
        blobs.outcomes = iter([OK])
        history = await written(blobs)
        assert sorted(epochs(history)) == epochs(history) == [1, 2, 3, 4, 5]
        kept = [record for record in history if not isinstance(record, Epoch)]
        assert sorted(kept, key=repr) == sorted(confirmed, key=repr)
        assert refused

    run_virtual(scenario())
