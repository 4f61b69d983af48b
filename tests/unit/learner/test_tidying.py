"""What is deleted, and what an attempt starts from."""

from __future__ import annotations

import io
import os

import pytest

from ebbtide import paths
from ebbtide.errors import DeadlineExceeded, Fenced, Temporary
from ebbtide.ledger import Ledger
from ebbtide.logs import setup
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.clock import VirtualClock, run_virtual
from ebbtide.wire import Manifest, PolicyRef, Ref, Saved, encode
from services.learner.app.janitor import Janitor
from services.learner.app.lineage import find_parent

UID = "job-uid"
PARENT = Ref(paths.manifest(UID, 1, 4), "digest", 9)


async def publication(blobs: FakeBlobs, version: int, *, attempt: int = 2) -> None:
    for name in ("config.json", "model.safetensors", "index.msgpack"):
        await blobs.put(f"{paths.policy(UID, attempt, version)}{name}", b"x")


async def checkpoint(
    blobs: FakeBlobs, step: int, *, attempt: int = 2, committed: bool = True
) -> Saved:
    shard = await blobs.put(f"{paths.shards(UID, attempt, step)}__0_0.distcp", b"x")
    index = Ref(f"{paths.policy(UID, attempt, step)}index.msgpack", "d", 1)
    saved = Saved(attempt, step, PolicyRef(step, attempt, "d"), index, (shard,), 1.0)
    if committed:
        manifest = Manifest(
            UID, attempt, None, step, saved.policy, index, saved.shards, index, 0, ()
        )
        await blobs.put(paths.manifest(UID, attempt, step), encode(manifest))
    return saved


def janitor(blobs: FakeBlobs, versions: range) -> Janitor:
    log = setup("error", stream=io.StringIO())
    made = Janitor(blobs=blobs, uid=UID, attempt=2, keep=2, log=log)
    for version in versions:
        made.published(version)
    return made


def versions(blobs: FakeBlobs, attempt: int = 2) -> list[int]:
    found = {
        path.split("/policies/")[1]
        for path in blobs.objects
        if "/policies/" in path and path.startswith(paths.attempt(UID, attempt))
    }
    return sorted({int(name.partition("/")[0]) for name in found})


async def test_old_publications_go_but_not_those_that_checkpoints_name() -> None:
    blobs = FakeBlobs()
    for version in range(6):
        await publication(blobs, version)
    saved = [await checkpoint(blobs, 1), await checkpoint(blobs, 2, committed=False)]
    await janitor(blobs, range(6)).sweep(5, saved)
    assert versions(blobs) == [1, 2, 4, 5]


async def test_shards_go_with_their_manifest_but_the_newest_may_still_get_one() -> None:
    blobs = FakeBlobs()
    saved = [await checkpoint(blobs, step, committed=step == 2) for step in (1, 2, 3)]
    await janitor(blobs, range(0)).sweep(5, saved)
    shards = {path.split("/checkpoints/")[1][:8] for path in blobs.objects if "distcp" in path}
    assert shards == {"00000002", "00000003"}


async def test_of_earlier_attempts_only_what_a_manifest_names_stays() -> None:
    blobs = FakeBlobs()
    for version in (3, 4):
        await publication(blobs, version, attempt=1)
    await checkpoint(blobs, 4, attempt=1)
    await checkpoint(blobs, 3, attempt=1, committed=False)
    await janitor(blobs, range(0)).sweep(0, ())
    assert versions(blobs, attempt=1) == [4]
    assert [path for path in blobs.objects if "distcp" in path] == [
        f"{paths.shards(UID, 1, 4)}__0_0.distcp"
    ]


async def test_a_store_that_fails_is_no_harm_and_the_next_sweep_makes_up_for_it() -> None:
    blobs = FakeBlobs()
    for version in range(4):
        await publication(blobs, version)
    keeper = janitor(blobs, range(4))
    deleted = blobs.delete
    blobs.delete = _failing  # type: ignore[method-assign]
    await keeper.sweep(3, ())
    assert versions(blobs) == [0, 1, 2, 3]
    blobs.delete = deleted  # type: ignore[method-assign]
    await keeper.sweep(3, ())
    assert versions(blobs) == [2, 3]


async def _failing(path: str) -> None:
    raise Temporary(path)


# --- lineage ----------------------------------------------------------------------------------


async def claim(blobs: FakeBlobs, attempt: int, parent: Ref | None) -> None:
    ledger = Ledger(blobs=blobs, clock=VirtualClock(), uid=UID, writer=os.urandom(16))
    await ledger.take_over(lambda _: None, attempt=attempt, parent=lambda: parent)


async def parent_of(blobs: FakeBlobs, attempt: int) -> Ref | None:
    return await find_parent(
        blobs=blobs, clock=VirtualClock(), uid=UID, attempt=attempt, patience=60.0
    )


def test_the_first_attempt_starts_afresh_and_waits_for_nobody() -> None:
    assert run_virtual(parent_of(FakeBlobs(), 1)) is None


def test_an_attempt_restores_from_the_parent_that_its_planner_claimed() -> None:
    async def scenario() -> Ref | None:
        blobs = FakeBlobs()
        await claim(blobs, 1, None)
        await claim(blobs, 2, PARENT)
        await claim(blobs, 2, PARENT)
        return await parent_of(blobs, 2)

    assert run_virtual(scenario()) == PARENT


def test_an_attempt_waits_for_its_planner_and_not_for_ever() -> None:
    async def scenario() -> None:
        blobs = FakeBlobs()
        await claim(blobs, 1, None)
        await parent_of(blobs, 2)

    with pytest.raises(DeadlineExceeded, match="no planner of attempt 2"):
        run_virtual(scenario())


def test_a_superseded_attempt_is_fenced() -> None:
    async def scenario() -> None:
        blobs = FakeBlobs()
        await claim(blobs, 3, None)
        await parent_of(blobs, 2)

    with pytest.raises(Fenced):
        run_virtual(scenario())
