"""What every blob store keeps to: the fake and the real ones alike."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from ebbtide.adapters.blobs import open_blobs
from ebbtide.errors import Corrupt, NotFound, Refused
from ebbtide.ports import Blobs
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.wire import Ref, digest
from tests.worlds.s3 import BUCKET

STORES: dict[str, Callable[[Path], Blobs]] = {
    "fake": lambda folder: FakeBlobs(folder=folder / "cache"),
    "memory": lambda folder: open_blobs("memory:///", cache=str(folder / "cache")),
    "file": lambda folder: open_blobs(f"file://{folder}/store"),
    "s3": lambda folder: open_blobs(f"s3://{BUCKET}/{folder.name}", cache=str(folder / "cache")),
}


@pytest.fixture(params=STORES)
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> Blobs:
    if request.param == "s3":
        request.getfixturevalue("s3")
    return STORES[request.param](tmp_path)


async def test_what_is_put_is_read(blobs: Blobs) -> None:
    ref = await blobs.put("jobs/u/a.bin", b"one")
    assert ref == Ref(path="jobs/u/a.bin", digest=digest(b"one"), size=3)
    assert await blobs.get("jobs/u/a.bin") == b"one"
    assert await blobs.fetch(ref) == b"one"


async def test_parts_of_one_object_are_fetched_apart(blobs: Blobs) -> None:
    parts = [b"one", b"", b"three"]
    refs = await blobs.put_all("jobs/u/parts", parts)
    assert [await blobs.fetch(ref) for ref in refs] == parts
    assert await blobs.list("jobs/u") == ["jobs/u/parts"]


async def test_a_part_that_is_not_there_is_corrupt(blobs: Blobs) -> None:
    first, second = await blobs.put_all("parts", [b"one", b"two"])
    await blobs.put("parts", b"one")
    assert await blobs.fetch(first) == b"one"
    with pytest.raises(Corrupt):
        await blobs.fetch(second)
    with pytest.raises(Corrupt, match="names no part"):
        await blobs.fetch(Ref("parts@x", first.digest, 3))


async def test_what_is_described_is_what_is_listed_with_its_size(blobs: Blobs) -> None:
    await blobs.put("jobs/u/a", b"one")
    await blobs.put("jobs/u/b/c", b"three")
    await blobs.put("jobs/w/a", b"")
    found = await blobs.described("jobs/u")
    assert [(one.path, one.size) for one in found] == [("jobs/u/a", 3), ("jobs/u/b/c", 5)]
    assert await blobs.list("jobs/u/") == [one.path for one in found]


async def test_put_overwrites(blobs: Blobs) -> None:
    await blobs.put("a", b"one")
    await blobs.put("a", b"two")
    assert await blobs.get("a") == b"two"


async def test_a_missing_blob_is_not_found(blobs: Blobs) -> None:
    missing = Ref(path="no/such", digest="", size=0)
    for read in (blobs.get("no/such"), blobs.fetch(missing), blobs.local(missing)):
        with pytest.raises(NotFound, match="no/such"):
            await read


async def test_other_content_than_the_reference_names_is_corrupt(blobs: Blobs) -> None:
    ref = await blobs.put("a", b"one")
    await blobs.put("a", b"two")
    with pytest.raises(Corrupt, match="digest differs"):
        await blobs.fetch(ref)


async def test_put_if_absent_never_overwrites(blobs: Blobs) -> None:
    assert await blobs.put_if_absent("a", b"one")
    assert not await blobs.put_if_absent("a", b"two")
    assert await blobs.get("a") == b"one"


@pytest.mark.parametrize("blobs", ["fake", "memory", "file"], indirect=True)  # S3: the ledger's
async def test_of_many_concurrent_puts_if_absent_exactly_one_wins(blobs: Blobs) -> None:
    async def race(name: int) -> tuple[list[bool], bytes]:
        tries = (blobs.put_if_absent(f"slots/{name}", bytes([who])) for who in range(16))
        return list(await asyncio.gather(*tries)), await blobs.get(f"slots/{name}")

    for won, content in await asyncio.gather(*(race(name) for name in range(50))):
        assert sum(won) == 1
        assert content == bytes([won.index(True)])


async def test_list_gives_the_folder_and_below_in_order(blobs: Blobs) -> None:
    for path in ("jobs/u/2", "jobs/u/sub/1", "jobs/u/1", "jobs/u2/1"):
        await blobs.put(path, b"")
    assert await blobs.list("jobs/u/") == ["jobs/u/1", "jobs/u/2", "jobs/u/sub/1"]
    assert await blobs.list("jobs/none/") == []


async def test_delete_is_idempotent(blobs: Blobs) -> None:
    await blobs.put("a", b"one")
    await blobs.delete("a")
    await blobs.delete("a")
    with pytest.raises(NotFound):
        await blobs.get("a")


async def test_a_file_goes_up_and_is_local_again(blobs: Blobs, tmp_path: Path) -> None:
    source = tmp_path / "weights"
    source.write_bytes(b"w" * 3_000_000)
    ref = await blobs.put_file("policies/1/model", source)
    assert ref.size == 3_000_000
    assert (await blobs.local(ref)).read_bytes() == source.read_bytes()


async def test_local_files_of_one_folder_stay_together(blobs: Blobs) -> None:
    index = await blobs.put("policies/1/index", b"index")
    model = await blobs.put("policies/1/model", b"model")
    paths = [await blobs.local(ref) for ref in (index, model)]
    assert paths[0].parent == paths[1].parent
    assert [path.name for path in paths] == ["index", "model"]


@pytest.mark.parametrize("path", ["/etc/passwd", "a/../../b", "a//b", "", "a b"])
async def test_a_path_that_leaves_the_store_is_refused(path: str) -> None:
    with pytest.raises(Refused):
        await open_blobs("memory:///").put(path, b"")
