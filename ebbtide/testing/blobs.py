"""A blob store in memory whose writes can fail, or succeed without saying so."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

from ebbtide.errors import Corrupt, NotFound, Temporary
from ebbtide.parts import of, place, refs
from ebbtide.ports import Stored
from ebbtide.wire import Ref, digest

OK = "ok"
FAIL = "fail"
AMBIGUOUS = "ambiguous"
"""The write takes effect, and the writer sees a Temporary failure."""


class FakeBlobs:
    """Implements `ebbtide.ports.Blobs`.

    `outcomes` says how each write ends: "ok", "fail" or "ambiguous"; when it is used up all are
    ok. `wall` gives the time of writes. `folder` is where `local` lays files; without it `local` may not be called.
    """

    def __init__(
        self,
        *,
        outcomes: Iterator[str] | None = None,
        folder: Path | None = None,
        wall: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self.objects: dict[str, bytes] = {}
        self._written: dict[str, float] = {}
        self._wall = wall
        self.outcomes = outcomes or iter(())
        self._folder = folder

    async def put(self, path: str, data: bytes) -> Ref:
        self._write(path, data)
        return Ref(path=path, digest=digest(data), size=len(data))

    async def put_all(self, path: str, parts: Sequence[bytes]) -> list[Ref]:
        self._write(path, b"".join(parts))
        return refs(path, parts)

    async def put_if_absent(self, path: str, data: bytes) -> bool:
        absent = path not in self.objects
        self._write(path, data if absent else self.objects[path])
        return absent

    async def put_file(self, path: str, source: Path) -> Ref:
        return await self.put(path, source.read_bytes())  # noqa: ASYNC240 - a fake may block

    async def get(self, path: str) -> bytes:
        if path not in self.objects:
            raise NotFound(f"no blob {path}")
        return self.objects[path]

    async def fetch(self, ref: Ref) -> bytes:
        data = of(await self.get(place(ref.path)[0]), ref)
        if digest(data) != ref.digest:
            raise Corrupt(f"{ref.path} is not what its reference names: digest differs")
        return data

    async def local(self, ref: Ref) -> Path:
        assert self._folder is not None, "FakeBlobs(folder=...) is needed for local()"
        data = await self.fetch(ref)
        path = self._folder / ref.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    async def list(self, prefix: str) -> list[str]:
        folder = f"{prefix.rstrip('/')}/" if prefix else ""
        return sorted(path for path in self.objects if path.startswith(folder))

    async def described(self, prefix: str) -> Sequence[Stored]:
        return [
            Stored(path, len(self.objects[path]), self._written.get(path, 0.0))
            for path in await self.list(prefix)
        ]

    async def delete(self, path: str) -> None:
        self.objects.pop(path, None)

    def _write(self, path: str, data: bytes) -> None:
        outcome = next(self.outcomes, OK)
        if outcome != FAIL:
            self.objects[path] = data
            self._written[path] = self._wall()
        if outcome != OK:
            raise Temporary(f"blob store failed at {path}")


def random_outcomes(rng: Random, *, fail: float, ambiguous: float) -> Iterator[str]:
    """Endless outcomes with these probabilities."""
    while True:
        drawn = rng.random()
        yield FAIL if drawn < fail else AMBIGUOUS if drawn < fail + ambiguous else OK
