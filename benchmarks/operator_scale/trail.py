"""What the API server's own log says of each change: when a request came, and when it was answered.

The server stamps both with one clock, in the same process, so neither this benchmark's client nor
its watches are in any of the differences.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from ebbtide.spec import API_VERSION
from tests.worlds.platform import SYSTEM

OPERATOR = f"system:serviceaccount:{SYSTEM}:ebbtide-operator"
POOLS, TOLD, PODS, STARTED = "decodepools", "decodepools/status", "pods", "pods/status"


class _User(msgspec.Struct):
    username: str = ""


class _Ref(msgspec.Struct):
    resource: str = ""
    subresource: str = ""
    name: str = ""


class _Code(msgspec.Struct):
    code: int = 0


class _Counts(msgspec.Struct, rename="camel"):
    ready_replicas: int | None = None


class _Body(msgspec.Struct):
    status: _Counts = msgspec.field(default_factory=_Counts)


class _Line(msgspec.Struct, rename="camel"):
    verb: str
    stage: str
    request_received_timestamp: datetime
    stage_timestamp: datetime
    user: _User = msgspec.field(default_factory=_User)
    object_ref: _Ref = msgspec.field(default_factory=_Ref)
    response_status: _Code = msgspec.field(default_factory=_Code)
    request_object: _Body = msgspec.field(default_factory=_Body)


_LINE = msgspec.json.Decoder(_Line)


@dataclass(frozen=True)
class Request:
    """One that was answered. `what`: resource, and subresource if any; times are Unix seconds.

    `ready`: the count of ready actors that it told, if it told one.
    """

    user: str
    verb: str
    what: str
    name: str
    came: float
    answered: float
    code: int = 200
    ready: int | None = None

    @property
    def took(self) -> float:
        """Seconds of the server's own."""
        return self.answered - self.came


@dataclass(frozen=True)
class Change:
    """One pool of a job patched by one actor. `victim`: who was named; empty where it grew.

    `news`: Unix time at which a bare watch, which does nothing else, had the new spec.
    """

    job: str
    replicas: int
    victim: str = ""
    news: float = 0.0


@dataclass
class Delays:
    """Seconds, one for each change or each actor that came.

    Added: from the server's answer to one write until the operator's next request came to it.
    Whole: from the first request's coming to the other's answer.
    """

    written: list[float] = field(default_factory=list)
    written_whole: list[float] = field(default_factory=list)
    reported: list[float] = field(default_factory=list)
    reported_whole: list[float] = field(default_factory=list)
    watched: list[float] = field(default_factory=list)
    """From the answer to the news of it on a bare watch: the server's own way of telling."""
    first: float = float("inf")
    last: float = 0.0

    @property
    def rate(self) -> float:
        """Changes a second that the server took, whatever was asked of it."""
        return (len(self.written) - 1) / max(self.last - self.first, 1e-9)


class Trail:
    """Reads the log as far as it is written, each line once."""

    def __init__(self, log: Path) -> None:
        self._log, self._at, self._rest = log, 0, b""

    def read(self) -> list[Request]:
        """Requests that were answered since the last call."""
        with self._log.open("rb") as stream:
            stream.seek(self._at)
            *lines, self._rest = (self._rest + stream.read()).split(b"\n")
            self._at = stream.tell()
        return [found for line in lines if (found := request(line))]


def request(line: bytes) -> Request | None:
    """The request of one line; None while it is not answered."""
    said = _LINE.decode(line)
    if said.stage != "ResponseComplete":
        return None
    ref = said.object_ref
    return Request(
        user=said.user.username,
        verb=said.verb,
        what=f"{ref.resource}/{ref.subresource}" if ref.subresource else ref.resource,
        name=ref.name,
        came=said.request_received_timestamp.timestamp(),
        answered=said.stage_timestamp.timestamp(),
        code=said.response_status.code,
        ready=said.request_object.status.ready_replicas,
    )


def delays(requests: Iterable[Request], changes: Sequence[Change]) -> Delays:
    """Pair each change with what the operator did about it; a job's changes come one by one.

    Raises AssertionError for a change without an answer: a delay that is missing is none that is
    short.
    """
    found, done = Delays(), defaultdict(list)
    for one in requests:
        if one.code < 300:
            done[one.verb, one.what, _job(one.name)].append(one)
    turn: dict[str, int] = defaultdict(int)
    for change in changes:
        spec = done["patch", POOLS, change.job][turn[change.job]]
        turn[change.job] += 1
        found.first, found.last = min(found.first, spec.came), max(found.last, spec.came)
        found.watched.append(change.news - spec.answered)
        child = _child(done, change, spec)
        found.written.append(child.came - spec.answered)
        found.written_whole.append(child.answered - spec.came)
        if not change.victim:
            _report(found, done, change, child)
    return found


_Done = Mapping[tuple[str, str, str], Sequence[Request]]


def _child(done: _Done, change: Change, spec: Request) -> Request:
    """The pod that was made, or the end of the one that was named."""
    verb = "delete" if change.victim else "create"
    found = (
        one
        for one in done[verb, PODS, change.job]
        if one.user == OPERATOR and one.came >= spec.came and change.victim in ("", one.name)
    )
    return _first(found, f"{change.job} to {change.replicas}")


def _report(found: Delays, done: _Done, change: Change, child: Request) -> None:
    """From the kubelet's word that the pod is ready to the pool's status that counts it."""
    started = (one for one in done["patch", STARTED, change.job] if one.name == child.name)
    ready = _first(started, f"{child.name} ready")
    told = (
        one
        for one in done["patch", TOLD, change.job]
        if one.came >= ready.came and one.ready == change.replicas
    )
    status = _first(told, f"{child.name} counted")
    found.reported.append(status.came - ready.answered)
    found.reported_whole.append(status.answered - ready.came)


def _first(found: Iterable[Request], what: str) -> Request:
    first = min(found, key=lambda one: one.came, default=None)
    assert first is not None, f"{what}: the server's log has no such request"
    return first


def _job(name: str) -> str:
    return name.partition("-decode-")[0]


def policy() -> str:
    """What the server logs: all that the operator asks, and who changes pools and starts pods."""
    ours = {"group": API_VERSION.partition("/")[0]}
    rules: list[dict[str, Any]] = [
        {"level": "Request", "users": [OPERATOR], "resources": [{**ours, "resources": [TOLD]}]},
        {"level": "Metadata", "users": [OPERATOR]},
        {"level": "Metadata", "verbs": ["patch"], "resources": [{**ours, "resources": [POOLS]}]},
        {"level": "Metadata", "verbs": ["patch"], "resources": [{"resources": [STARTED]}]},
        {"level": "None"},
    ]
    head = {"apiVersion": "audit.k8s.io/v1", "kind": "Policy"}
    return json.dumps({**head, "omitStages": ["RequestReceived"], "rules": rules})
