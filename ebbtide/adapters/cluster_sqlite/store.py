"""Objects and their history in SQLite: one writer at a time, readers never wait.

Blocking; `cluster.py` calls it from a thread. Write-ahead logging with full synchronisation: a
write that returned survives kill -9 and power loss, and no reader sees half of one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from ebbtide.errors import Conflict, Permanent, Temporary
from ebbtide.objects import Key, key_of, matches
from ebbtide.ports import Change, Meta, Resource

SCHEMA = 1
HISTORY = 2000
"""Changes kept for watches; a watch that asks for older ones lists anew."""
_BUSY_SECONDS = 10.0
_PRUNE_EVERY = 16
_TABLES = """
CREATE TABLE IF NOT EXISTS objects (
  kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL, uid TEXT NOT NULL UNIQUE,
  body BLOB NOT NULL, PRIMARY KEY (kind, namespace, name));
CREATE TABLE IF NOT EXISTS owners (
  owner TEXT NOT NULL, uid TEXT NOT NULL, PRIMARY KEY (owner, uid)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS history (
  version INTEGER PRIMARY KEY, kind TEXT NOT NULL, namespace TEXT NOT NULL, type TEXT NOT NULL,
  body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT OR IGNORE INTO counters VALUES ('version', 0), ('pruned', 0);
"""


def connect(path: Path) -> sqlite3.Connection:
    """Open the file, making it where there is none; raises Permanent when it cannot be used."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        database = sqlite3.connect(
            path, timeout=_BUSY_SECONDS, isolation_level=None, check_same_thread=False
        )
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
        _migrate(database, path)
    except (OSError, sqlite3.DatabaseError) as error:
        raise Permanent(f"cannot open the object store {path}: {error}") from error
    return database


def _migrate(database: sqlite3.Connection, path: Path) -> None:
    found = database.execute("PRAGMA user_version").fetchone()[0]
    if found > SCHEMA:
        raise Permanent(f"{path} was written by a newer version (schema {found}, not {SCHEMA})")
    if found < SCHEMA:
        database.executescript(f"BEGIN IMMEDIATE; {_TABLES} PRAGMA user_version={SCHEMA}; COMMIT;")


@contextmanager
def transaction(database: sqlite3.Connection, mode: str, *, history: int) -> Iterator[SqlTable]:
    """One transaction, IMMEDIATE to write or DEFERRED to read; raises Temporary when it cannot."""
    try:
        database.execute(f"BEGIN {mode}")
        try:
            yield SqlTable(database, history=history)
            database.execute("COMMIT")
        except BaseException:
            if database.in_transaction:
                database.execute("ROLLBACK")
            raise
    except sqlite3.OperationalError as error:  # busy, disk full, I/O
        raise Temporary(f"object store: {error}") from error
    except sqlite3.DatabaseError as error:
        raise Permanent(f"object store: {error}") from error


class SqlTable:
    """Implements `ebbtide.objects.Table` inside an open transaction."""

    def __init__(self, database: sqlite3.Connection, *, history: int) -> None:
        self._db = database
        self._history = history

    def version(self) -> int:
        """Of the last change."""
        return self._counter("version")

    def next_version(self) -> int:
        version = self.version() + 1
        self._db.execute("UPDATE counters SET value = ? WHERE name = 'version'", (version,))
        if version % _PRUNE_EVERY == 0:
            self._prune(version - self._history)
        return version

    def load(self, key: Key) -> Resource | None:
        row = self._db.execute(
            "SELECT body FROM objects WHERE kind = ? AND namespace = ? AND name = ?", key
        ).fetchone()
        return _read(row[0]) if row else None

    def save(self, resource: Resource, change: str) -> None:
        body = msgspec.json.encode(resource)
        meta = resource.metadata
        self._db.execute(
            "INSERT OR REPLACE INTO objects VALUES (?, ?, ?, ?, ?)",
            (*key_of(resource), meta.uid, body),
        )
        self._db.execute("DELETE FROM owners WHERE uid = ?", (meta.uid,))
        owners = {(owner.uid, meta.uid) for owner in meta.owner_references}
        self._db.executemany("INSERT INTO owners VALUES (?, ?)", owners)
        self._record(resource, change, body)

    def erase(self, resource: Resource) -> None:
        self._db.execute("DELETE FROM objects WHERE uid = ?", (resource.metadata.uid,))
        self._db.execute("DELETE FROM owners WHERE uid = ?", (resource.metadata.uid,))
        self._record(resource, "DELETED", msgspec.json.encode(resource))

    def exists(self, uid: str) -> bool:
        found = self._db.execute("SELECT 1 FROM objects WHERE uid = ?", (uid,)).fetchone()
        return found is not None

    def owned_by(self, uid: str) -> list[Resource]:
        query = "SELECT body FROM objects JOIN owners USING (uid) WHERE owner = ? ORDER BY name"
        return [_read(body) for (body,) in self._db.execute(query, (uid,))]

    def select(
        self, kind: str, namespace: str | None, labels: Mapping[str, str] | None
    ) -> list[Resource]:
        """Objects of a kind, ordered by namespace and name."""
        query = (
            "SELECT body FROM objects WHERE kind = ?1 AND (?2 IS NULL OR namespace = ?2)"
            " ORDER BY namespace, name"
        )
        found = (_read(body) for (body,) in self._db.execute(query, (kind, namespace)))
        return [resource for resource in found if matches(resource, labels)]

    def changes(
        self, kinds: Sequence[str], namespace: str | None, since: int, limit: int
    ) -> tuple[list[Change], int]:
        """Changes after `since`, and the version up to which that is all there were.

        Raises Conflict("expired") when history does not reach back to `since`.
        """
        latest = self.version()
        if since < self._counter("pruned") or since > latest:
            raise Conflict("expired: list again and watch from there")
        marks = ", ".join("?" for _ in kinds)
        query = (
            f"SELECT type, body, version FROM history WHERE version > ? AND kind IN ({marks})"  # noqa: S608
            " AND (? IS NULL OR namespace = ?) ORDER BY version LIMIT ?"
        )
        rows = self._db.execute(query, (since, *kinds, namespace, namespace, limit)).fetchall()
        seen = rows[-1][2] if len(rows) == limit else latest
        return [Change(kind, _read(body)) for kind, body, _ in rows], seen

    def _record(self, resource: Resource, change: str, body: bytes) -> None:
        meta = resource.metadata
        self._db.execute(
            "INSERT INTO history VALUES (?, ?, ?, ?, ?)",
            (int(meta.resource_version), resource.kind, meta.namespace, change, body),
        )

    def _prune(self, upto: int) -> None:
        if upto > 0:
            self._db.execute("DELETE FROM history WHERE version <= ?", (upto,))
            self._db.execute("UPDATE counters SET value = ? WHERE name = 'pruned'", (upto,))

    def _counter(self, name: str) -> int:
        query = "SELECT value FROM counters WHERE name = ?"
        return int(self._db.execute(query, (name,)).fetchone()[0])


def _read(body: bytes) -> Resource:
    return msgspec.json.decode(body, type=Resource)


def bookmark(version: int) -> Change:
    """A change that only says how far the watch has read."""
    meta = Meta(name="", namespace="", resource_version=str(version))
    return Change("BOOKMARK", Resource(api_version="v1", kind="", metadata=meta))
