"""The hot store over redis-py: one list per journal, and small values that expire.

Implements `ebbtide.ports.Hot`. All failures of the server are Temporary: what it holds can be
made again. Every key has a time to live, so nothing that is forgotten stays.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager

import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, RedisError

from ebbtide import journals
from ebbtide.errors import Corrupt, NotFound, Refused, Temporary
from ebbtide.wire import Journal, JournalRef, encode

_DECODER = msgspec.msgpack.Decoder(Journal)
_CALL_SECONDS = 5.0


@asynccontextmanager
async def open_hot(
    url: str, *, password: str = "", journal_ttl: float = 3600.0
) -> AsyncIterator[ValkeyHot]:
    """A connection pool while open; connects at the first call, and again after a loss.

    `journal_ttl`: seconds that a journal outlives its last append.
    """
    try:
        client = Redis.from_url(
            url,
            password=password or None,
            socket_timeout=_CALL_SECONDS,
            socket_connect_timeout=_CALL_SECONDS,
            retry=Retry(NoBackoff(), 1),
            client_name="ebbtide",
        )
    except ValueError as error:
        raise Refused(f"not a hot store: {error}", field="EBBTIDE_VALKEY_URL") from None
    async with client:
        yield ValkeyHot(client=client, journal_ttl=journal_ttl)


class ValkeyHot:
    """Made by `open_hot`."""

    def __init__(self, *, client: Redis, journal_ttl: float) -> None:
        self._client = client
        self._ttl_ms = int(journal_ttl * 1000)

    async def ping(self) -> str:
        """What is wrong with the server now, or an empty string (for readiness)."""
        try:
            with _translated("pinging"):
                await self._client.ping()
        except Temporary as error:
            return str(error)
        return ""

    async def append(self, chunks: Sequence[tuple[JournalRef, Journal]]) -> None:
        """Append all in one round trip; a retry after a failure may store chunks twice."""
        by_name: dict[str, list[bytes]] = defaultdict(list)
        for ref, chunk in chunks:
            by_name[journals.name(ref)].append(encode(chunk))
        async with self._client.pipeline(transaction=False) as pipe:
            for name, encoded in by_name.items():
                pipe.rpush(name, *encoded)
                pipe.pexpire(name, self._ttl_ms)
            with _translated("appending journals"):
                await pipe.execute()

    async def journal(self, ref: JournalRef) -> Sequence[Journal]:
        """Chunks covering exactly tokens [0, ref.n_tokens); raises NotFound at any gap."""
        name = journals.name(ref)
        with _translated("reading a journal"):
            held = await self._client.lrange(name, 0, -1)
        if not held:
            raise NotFound(f"no journal {name}")
        return journals.cover([_chunk(name, data) for data in held], ref.n_tokens)

    async def forget(self, refs: Sequence[JournalRef]) -> None:
        """Drop journals; those that are gone already are no error."""
        if refs:
            with _translated("forgetting journals"):
                await self._client.unlink(*{journals.name(r) for r in refs})

    async def put(self, key: str, data: bytes, ttl: float) -> None:
        """Set a value that expires after `ttl` seconds."""
        with _translated(f"setting {key}"):
            await self._client.set(key, data, px=max(int(ttl * 1000), 1))

    async def get(self, key: str) -> bytes | None:
        """The value, or None if it was never set, expired, or was lost."""
        with _translated(f"getting {key}"):
            data = await self._client.get(key)
        assert not isinstance(data, str), "the client must not decode"
        return data


def _chunk(name: str, data: bytes | str) -> Journal:
    assert isinstance(data, bytes), "the client must not decode"
    try:
        return _DECODER.decode(data)
    except msgspec.MsgspecError as error:
        raise Corrupt(f"{name} holds no journal chunk: {error}") from None


@contextmanager
def _translated(doing: str) -> Iterator[None]:
    try:
        yield
    except AuthenticationError as error:
        raise Refused(f"hot store denies us: {error}", field="EBBTIDE_VALKEY_PASSWORD") from None
    except (RedisError, OSError) as error:
        raise Temporary(f"hot store failed while {doing}: {error}") from None
