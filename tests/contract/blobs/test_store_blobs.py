"""What only the real stores have: folders on disk, cached copies, rights."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from ebbtide import rights
from ebbtide.adapters.blobs import StoreBlobs, open_blobs
from ebbtide.adapters.durable import Durable
from ebbtide.errors import Corrupt, Permanent, Refused, Temporary
from ebbtide.ports import Blobs
from tests.worlds.s3 import BUCKET


async def read_while_writing(blobs: Blobs, rounds: int) -> set[bytes]:
    seen: set[bytes] = set()

    async def write() -> None:
        for index in range(rounds):
            await blobs.put("a", bytes([index]) * 100_000)

    async def read() -> None:
        for _ in range(rounds):
            data = await blobs.get("a")
            seen.add(data[:1] if len(set(data)) == 1 and len(data) == 100_000 else b"torn")

    await blobs.put("a", b"\0" * 100_000)
    await asyncio.gather(write(), read(), read())
    return seen


async def test_a_reader_never_sees_half_an_object(tmp_path: Path) -> None:
    assert b"torn" not in await read_while_writing(open_blobs(f"file://{tmp_path}"), rounds=100)


async def test_local_gives_the_object_itself_on_a_folder(tmp_path: Path) -> None:
    blobs = open_blobs(f"file://{tmp_path}")
    ref = await blobs.put("policies/1/model", b"weights")
    assert await blobs.local(ref) == tmp_path / "policies/1/model"


async def test_local_refuses_an_object_of_another_size(tmp_path: Path) -> None:
    blobs = open_blobs(f"file://{tmp_path}")
    ref = await blobs.put("a", b"weights")
    await blobs.put("a", b"half")
    with pytest.raises(Corrupt, match="has 4 bytes, not 7"):
        await blobs.local(ref)


async def test_a_damaged_copy_is_fetched_again(tmp_path: Path) -> None:
    blobs = open_blobs("memory:///", cache=str(tmp_path))
    ref = await blobs.put("a", b"weights")
    (tmp_path / "a").write_bytes(b"rotten!")
    assert (await blobs.local(ref)).read_bytes() == b"weights"


async def test_copies_used_longest_ago_make_room(tmp_path: Path) -> None:
    blobs = open_blobs("memory:///", cache=str(tmp_path), cache_bytes=250)
    refs = [await blobs.put(f"p/{name}", bytes([name]) * 100) for name in range(5)]
    for ref in refs:
        await blobs.local(ref)
    assert len(list((tmp_path / "p").iterdir())) == 2
    assert (await blobs.local(refs[0])).read_bytes() == b"\0" * 100


async def test_only_the_planner_may_write_the_ledger(tmp_path: Path) -> None:
    path = "jobs/u-1/ledger/000000000000.seg"
    for role in rights.ROLES:
        writable = rights.blob_writes(role, "u-1")
        blobs = open_blobs(f"file://{tmp_path}/{role}", writable=writable)
        if role == "planner":
            assert await blobs.put_if_absent(path, b"")
        else:
            with pytest.raises(Refused, match="may not write"):
                await blobs.put_if_absent(path, b"")


async def test_a_blocked_folder_is_temporary_and_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_bytes(b"a file where a folder should be")
    with pytest.raises(Temporary, match="blob store failed at jobs/a") as failure:
        await open_blobs(f"file://{tmp_path}").put("jobs/a", b"")
    assert "\n" not in str(failure.value)


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(Refused, match="as blob store"):
        open_blobs(f"file://{tmp_path}/file/store")


@pytest.mark.parametrize("url", ["nonsense://x", "/just/a/path"])
def test_an_unknown_url_is_refused(url: str) -> None:
    with pytest.raises(Refused, match="cannot open blob store"):
        open_blobs(url)


async def test_a_download_of_other_content_is_corrupt_and_not_kept(tmp_path: Path) -> None:
    blobs = open_blobs("memory:///", cache=str(tmp_path))
    ref = await blobs.put("a", b"weights")
    await blobs.put("a", b"forgery")
    with pytest.raises(Corrupt, match="digest differs"):
        await blobs.local(ref)
    assert list(tmp_path.iterdir()) == []


async def test_a_folder_goes_with_its_last_blob(tmp_path: Path) -> None:
    blobs = open_blobs(f"file://{tmp_path / 'store'}")
    for path in ("policies/1/model", "policies/1/config", "policies/2/model"):
        await blobs.put(path, b"x")
    await blobs.delete("policies/1/model")
    assert (tmp_path / "store/policies/1").is_dir()
    await blobs.delete("policies/1/config")
    assert [found.name for found in (tmp_path / "store/policies").iterdir()] == ["2"]
    await blobs.delete("policies/2/model")
    assert list(tmp_path.iterdir()) == [tmp_path / "store"]
    await blobs.put("policies/3/model", b"x")
    assert await blobs.list("policies") == ["policies/3/model"]


# --- what outlives a power cut --------------------------------------------------------------------


async def a_put(blobs: StoreBlobs, _: Path) -> None:
    await blobs.put("jobs/1/rollouts/a", b"tokens")


async def a_put_if_absent(blobs: StoreBlobs, _: Path) -> None:
    assert await blobs.put_if_absent("jobs/1/rollouts/a", b"tokens")


async def a_file(blobs: StoreBlobs, source: Path) -> None:
    source.write_bytes(b"tokens")
    await blobs.put_file("jobs/1/rollouts/a", source)


@pytest.mark.parametrize("write", [a_put, a_put_if_absent, a_file])
async def test_a_write_returns_once_the_object_and_all_names_above_it_are_on_the_disk(
    tmp_path: Path, write: Callable[[StoreBlobs, Path], Awaitable[None]]
) -> None:
    root, files, folders = tmp_path / "blobs", list[bytes](), list[str]()

    def durable(root: Path) -> Durable:
        return Durable(
            root,
            file=lambda path: files.append(path.read_bytes()),
            folder=lambda path: folders.append(path.relative_to(root).as_posix()),
        )

    blobs = open_blobs(f"file://{root}", durable=durable)
    await write(blobs, tmp_path / "source")
    assert files == [b"tokens"]
    assert folders == ["jobs/1/rollouts", "jobs/1", "jobs", "."]
    await blobs.put("jobs/1/rollouts/b", b"more")
    assert folders[4:] == ["jobs/1/rollouts"]


async def test_a_folder_that_went_and_came_again_is_synced_again(tmp_path: Path) -> None:
    folders = list[str]()

    def durable(root: Path) -> Durable:
        return Durable(root, folder=lambda path: folders.append(path.relative_to(root).as_posix()))

    blobs = open_blobs(f"file://{tmp_path}", durable=durable)
    await blobs.put("jobs/1/a", b"x")
    await blobs.delete("jobs/1/a")
    folders.clear()
    await blobs.put("jobs/1/a", b"x")
    assert folders == ["jobs/1", "jobs", "."]


async def test_a_disk_that_does_not_take_the_bytes_is_a_failure_to_write(tmp_path: Path) -> None:
    def full(_: Path) -> None:
        raise OSError(28, "No space left on device")

    blobs = open_blobs(f"file://{tmp_path}", durable=lambda root: Durable(root, file=full))
    for write in (blobs.put_if_absent, blobs.put):
        with pytest.raises(Temporary, match="No space left"):
            await write("a", b"tokens")


async def test_writes_to_one_folder_share_its_syncs(tmp_path: Path) -> None:
    began, go, syncs = threading.Event(), threading.Event(), list[Path]()

    def slow(path: Path) -> None:
        syncs.append(path)
        began.set()
        assert go.wait(30)

    durable = Durable(tmp_path, file=lambda _: None, folder=slow)
    first = asyncio.create_task(durable.settle(tmp_path / "a"))
    await asyncio.to_thread(began.wait, 30)
    others = [asyncio.create_task(durable.settle(tmp_path / f"{n}")) for n in range(50)]
    await asyncio.sleep(0.1)
    assert len(syncs) == 1
    go.set()
    await asyncio.gather(first, *others)
    assert 2 <= len(syncs) < 20


async def test_an_s3_store_is_not_opened_by_another_secret(
    s3: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    blobs = open_blobs(f"s3://{BUCKET}/denied")
    with pytest.raises(Permanent, match="denies a") as denied:
        await blobs.put("a", b"one")
    assert "another" not in str(denied.value)
