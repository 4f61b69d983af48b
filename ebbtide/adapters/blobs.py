"""The blob store over obstore: a local folder, memory, S3, GCS or Azure, by URL.

Implements `ebbtide.ports.Blobs`. Reads of a folder give the real files; reads of a remote store
keep verified copies in a bounded cache folder. What was written to a folder outlives a power cut
from the moment that the write returned.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import tempfile
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import (
    AlreadyExistsError,
    BaseError,
    PermissionDeniedError,
    UnauthenticatedError,
)
from obstore.store import LocalStore, MemoryStore, ObjectStore, from_url

from ebbtide.adapters.durable import Durable
from ebbtide.errors import Corrupt, NotFound, Permanent, Refused, Temporary
from ebbtide.parts import of, place, refs
from ebbtide.ports import Stored
from ebbtide.wire import Ref

_PLAIN = re.compile(r"[A-Za-z0-9_.=-]+(/[A-Za-z0-9_.=-]+)*")
_CHUNK = 1 << 20
_REQUEST_SECONDS = 30


def open_blobs(
    url: str,
    *,
    cache: str = "",
    cache_bytes: int = 64 << 30,
    writable: Sequence[str] | None = None,
    durable: Callable[[Path], Durable] = Durable,
) -> StoreBlobs:
    """Open the store at `url`: file:///folder, memory:///, s3://bucket/prefix, gs://, az://.

    `writable`: patterns of the paths that may be written (`ebbtide.rights`), None for all.
    `durable`: given the folder of a local store, what syncs its files to the disk.
    Credentials of remote stores come from their own environment variables.
    """
    scheme = urlsplit(url).scheme
    if scheme == "memory":
        store: ObjectStore = MemoryStore()
        root = None
    elif scheme == "file":
        root = Path(unquote(urlsplit(url).path))
        store = _open_folder(root)
    else:
        store, root = _open_remote(url), None
    folder = Path(cache) if cache else Path(tempfile.gettempdir()) / "ebbtide-blobs"
    kept = Cache(folder=folder, limit=cache_bytes)
    return StoreBlobs(
        store=store,
        root=root,
        cache=kept,
        durable=durable(root) if root else None,
        writable=writable,
    )


class StoreBlobs:
    """Blobs in one obstore store. `root` is the folder of a local store, else None."""

    def __init__(
        self,
        *,
        store: ObjectStore,
        root: Path | None,
        cache: Cache,
        durable: Durable | None,
        writable: Sequence[str] | None = None,
    ) -> None:
        self._store = store
        self._root = root
        self._cache = cache
        self._durable = durable
        self._writable = writable

    async def put(self, path: str, data: bytes) -> Ref:
        """Write or overwrite; readers see the old or the new object, never a part."""
        self._check_write(path)
        with _translated(path):
            await obstore.put_async(self._store, path, data, use_multipart=False)
            await self._settle(path)
        return Ref(path=path, digest=await _digest(data), size=len(data))

    async def put_all(self, path: str, parts: Sequence[bytes]) -> list[Ref]:
        """Write `parts` as one object; each of the refs, which only `fetch` takes, names one."""
        await self.put(path, b"".join(parts))
        return refs(path, parts)

    async def put_if_absent(self, path: str, data: bytes) -> bool:
        """True for at most one caller ever.

        After a lost answer of a remote store, False may mean one's own earlier write: whoever
        must know compares the bytes (as `ebbtide.ledger` does).
        """
        self._check_write(path)
        try:
            with _translated(path):
                await obstore.put_async(self._store, path, data, mode="create")
                await self._settle(path)
        except AlreadyExistsError:
            return False
        return True

    async def put_file(self, path: str, source: Path) -> Ref:
        """Upload the local file `source`; large ones in parts, visible only when whole."""
        self._check_write(path)
        digest, size = await asyncio.to_thread(_file_digest, source)
        with _translated(path):
            await obstore.put_async(self._store, path, source)
            await self._settle(path)
        return Ref(path=path, digest=digest, size=size)

    async def get(self, path: str) -> bytes:
        """Read whole; raises NotFound."""
        _check_plain(path)
        with _translated(path):
            if self._root is not None:
                return await _read_file(self._root / path)
            found = await obstore.get_async(self._store, path)
            return bytes(await found.bytes_async())

    async def fetch(self, ref: Ref) -> bytes:
        """Read and verify; raises NotFound or Corrupt."""
        data = await self._read(ref)
        if await _digest(data) != ref.digest:
            raise Corrupt(f"{ref.path} is not what its reference names: digest differs")
        return data

    async def _read(self, ref: Ref) -> bytes:
        """The object, or of an object with parts the one that is named."""
        path, start = place(ref.path)
        if start is None or not ref.size:
            return of(await self.get(path), ref)
        _check_plain(path)
        with _translated(path):
            if self._root is not None:
                return await _read_part(self._root / path, start, ref.size)
            try:
                part = await obstore.get_range_async(
                    self._store, path, start=start, length=ref.size
                )
            except BaseError:
                whole = await obstore.head_async(self._store, path)
                if whole["size"] < start + ref.size:
                    raise Corrupt(f"{path} ends before {ref.path} does") from None
                raise
        return bytes(part)

    async def local(self, ref: Ref) -> Path:
        """The file itself on a local folder (its digest unread), else a verified copy.

        Copies keep their path below the cache folder, so files of one folder stay together.
        """
        _check_plain(ref.path)
        if self._root is None:
            return await self._cache.obtain(ref, self._stream(ref.path))
        path = self._root / ref.path
        if not path.is_file():
            raise NotFound(f"no blob {ref.path}")
        if path.stat().st_size != ref.size:
            raise Corrupt(f"{ref.path} has {path.stat().st_size} bytes, not {ref.size}")
        return path

    async def list(self, prefix: str) -> list[str]:
        """Paths in the folder `prefix` and below, sorted."""
        return [one.path for one in await self.described(prefix)]

    async def described(self, prefix: str) -> Sequence[Stored]:
        """What `list` gives, with sizes and times of the last write."""
        found: deque[Stored] = deque()
        with _translated(prefix):
            async for chunk in obstore.list(self._store, prefix.rstrip("/") or None):
                found.extend(
                    Stored(meta["path"], meta["size"], meta["last_modified"].timestamp())
                    for meta in chunk
                )
        return sorted(found, key=lambda one: one.path)

    async def delete(self, path: str) -> None:
        """Remove; a missing path is not an error."""
        self._check_write(path)
        try:
            with _translated(path):
                await obstore.delete_async(self._store, path)
        except NotFound:
            return
        if self._root is not None and self._durable is not None:
            self._durable.forget(self._root / path)

    async def _settle(self, path: str) -> None:
        """Remote stores answer only once an object is safe; a folder's files are synced here."""
        if self._root is not None and self._durable is not None:
            await self._durable.settle(self._root / path)

    def _check_write(self, path: str) -> None:
        _check_plain(path)
        if self._writable is None or any(fnmatchcase(path, p) for p in self._writable):
            return
        raise Refused(f"this process may not write {path}")

    async def _stream(self, path: str) -> AsyncIterator[bytes]:
        with _translated(path):
            found = await obstore.get_async(self._store, path)
            async for part in found.stream(min_chunk_size=_CHUNK):
                yield bytes(part)


class Cache:
    """Verified copies of remote blobs under `folder`, at most about `limit` bytes in all."""

    def __init__(self, *, folder: Path, limit: int) -> None:
        self._folder = folder
        self._limit = limit
        self._verified: dict[str, str] = {}

    async def obtain(self, ref: Ref, parts: AsyncIterator[bytes]) -> Path:
        """The copy of `ref`; `parts` is read only if there is none. Raises Corrupt."""
        path = self._folder / ref.path
        if await asyncio.to_thread(self._holds, ref, path):
            os.utime(path)
            return path
        path.parent.mkdir(parents=True, exist_ok=True)
        await _write_verified(ref, path, parts)
        self._verified[ref.path] = ref.digest
        await asyncio.to_thread(self._trim, path)
        return path

    def _holds(self, ref: Ref, path: Path) -> bool:
        if not path.is_file() or path.stat().st_size != ref.size:
            return False
        if self._verified.get(ref.path) != ref.digest:
            self._verified[ref.path] = _file_digest(path)[0]
        return self._verified[ref.path] == ref.digest

    def _trim(self, keep: Path) -> None:
        """Drop the copies used longest ago until the rest fits, never the one just made."""
        files = [(path, path.stat()) for path in self._folder.rglob("*") if path.is_file()]
        files.sort(key=lambda item: item[1].st_mtime)
        excess = sum(stat.st_size for _, stat in files) - self._limit
        for path, stat in files:
            if excess <= 0:
                return
            if path != keep:
                path.unlink(missing_ok=True)
                excess -= stat.st_size


async def _write_verified(ref: Ref, path: Path, parts: AsyncIterator[bytes]) -> None:
    partial = path.with_name(f"{path.name}.{secrets.token_hex(4)}.part")
    hasher = hashlib.sha256()
    try:
        with partial.open("wb") as file:
            async for part in parts:
                hasher.update(part)
                file.write(part)
        if hasher.hexdigest() != ref.digest:
            raise Corrupt(f"{ref.path} is not what its reference names: digest differs")
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def _translated(path: str) -> Iterator[None]:
    try:
        yield
    except AlreadyExistsError:
        raise
    except FileNotFoundError:
        raise NotFound(f"no blob {path}") from None
    except (PermissionDeniedError, UnauthenticatedError, PermissionError) as error:
        raise Permanent(f"blob store denies {path}: {_first_line(error)}") from None
    except (BaseError, OSError) as error:
        raise Temporary(f"blob store failed at {path}: {_first_line(error)}") from None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]


def _check_plain(path: str) -> None:
    if not _PLAIN.fullmatch(path) or ".." in path.split("/"):
        raise Refused(f"not a blob path: {path!r}")


def _open_folder(root: Path) -> LocalStore:
    try:
        # Folders go with their last blob, as in stores that have none. A put that loses its new
        # folder to a delete at that moment fails as Temporary.
        return LocalStore(prefix=root, mkdir=True, automatic_cleanup=True)
    except (BaseError, OSError, ValueError) as error:
        detail = f"cannot use {root} as blob store: {_first_line(error)}"
        raise Refused(detail, field="EBBTIDE_BLOBS_URL") from None


def _open_remote(url: str) -> ObjectStore:
    try:
        return from_url(
            url,
            client_options={
                "timeout": timedelta(seconds=_REQUEST_SECONDS),
                "allow_http": _may_be_plain(os.environ),
            },
            retry_config={"retry_timeout": timedelta(seconds=4 * _REQUEST_SECONDS)},
        )
    except (BaseError, ValueError) as error:
        detail = f"cannot open blob store {url}: {_first_line(error)}"
        raise Refused(detail, field="EBBTIDE_BLOBS_URL") from None


def _may_be_plain(environ: Mapping[str, str]) -> bool:
    """Whether http:// endpoints may be used: options given here hide the store's own variable."""
    names = ("AWS_ALLOW_HTTP", "AZURE_ALLOW_HTTP")
    return any(environ.get(name, "").lower() in ("1", "true") for name in names)


async def _read_file(path: Path) -> bytes:
    """Small files are read at once: a thread would cost ten times what the disk does."""
    if path.stat().st_size <= _CHUNK:  # noqa: ASYNC240
        return path.read_bytes()  # noqa: ASYNC240
    return await asyncio.to_thread(path.read_bytes)


async def _read_part(path: Path, start: int, size: int) -> bytes:
    """Less than `size` bytes where the file ends before."""

    def read() -> bytes:
        with path.open("rb", buffering=0) as file:
            return os.pread(file.fileno(), size, start)

    return read() if size <= _CHUNK else await asyncio.to_thread(read)


async def _digest(data: bytes) -> str:
    if len(data) <= _CHUNK:
        return hashlib.sha256(data).hexdigest()
    return await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())


def _file_digest(path: Path) -> tuple[str, int]:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest(), path.stat().st_size
    except FileNotFoundError:
        raise NotFound(f"no file {path}") from None
