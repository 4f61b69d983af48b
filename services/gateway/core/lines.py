"""Which pods a job had, what of their logs is kept, and where a reader of them is."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from ebbtide import labels
from ebbtide.ports import Resource
from ebbtide.usage import Usage

_STAMP = b'{"at":"'


class _Said(msgspec.Struct):
    step: Any = None
    key: Any = None


class PodRole(msgspec.Struct, frozen=True, order=True):
    """A pod that lives or lived."""

    role: str
    pod: str


class Read(msgspec.Struct, frozen=True, array_like=True):
    """Cursor of a log stream: lines read by pod."""

    lines: dict[str, int] = {}

    def next(self, pod: str) -> Read:
        """With one line more of `pod`."""
        return Read({**self.lines, pod: self.lines.get(pod, 0) + 1})


class Line(msgspec.Struct, frozen=True):
    """One line of a pod's log, and when it was said: empty where nothing tells."""

    source: PodRole
    number: int
    raw: bytes
    at: str = ""


def pods_of(
    living: Iterable[Resource], usages: Iterable[Usage], *, role: str | None, pod: str | None
) -> list[PodRole]:
    """The job's pods, ended ones too, filtered; those that lived last come first."""
    until = {PodRole(usage.role, usage.pod): usage.seen_at for usage in usages}
    now = {PodRole(_role(p.metadata.labels), p.metadata.name): float("inf") for p in living}
    seen = until | now
    chosen = [p for p in seen if role in (None, p.role) and pod in (None, p.pod)]
    return sorted(chosen, key=lambda one: (-seen[one], one))


def _role(own: Mapping[str, str]) -> str:
    return own.get(labels.ROLE, "")


def stamped(source: PodRole, lines: Iterable[tuple[int, bytes]]) -> list[Line]:
    """Numbered lines with their times; what has none was said when the line before it was."""
    found: list[Line] = []
    at = ""
    for number, raw in lines:
        at = _at(raw) or at
        found.append(Line(source, number, raw, at))
    return found


def of_step(raw: bytes, step: int | None) -> bool:
    """Whether a line names this step, or a sample of it; without a step every line is wanted."""
    if step is None:
        return True
    try:
        said = msgspec.json.decode(raw, type=_Said)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False
    sample = said.key.get("step_issued") if isinstance(said.key, dict) else None
    return step in (said.step, sample)


def _at(raw: bytes) -> str:
    if not raw.startswith(_STAMP):
        return ""
    return raw[len(_STAMP) :].partition(b'"')[0].decode("ascii", "replace")


def in_order(logs: Iterable[Sequence[Line]]) -> Iterator[Line]:
    """Lines of all pods in one order of time; those of one pod stay in their own."""
    for *_, said in heapq.merge(*map(_keyed, logs)):
        yield said


def _keyed(lines: Sequence[Line]) -> Iterator[tuple[str, PodRole, int, Line]]:
    latest = ""
    for place, said in enumerate(lines):
        latest = max(latest, said.at.removesuffix("Z"))
        yield latest, said.source, place, said


def joined(kept: Sequence[bytes], tail: Sequence[bytes]) -> list[bytes]:
    """What is kept of a log, and its last lines, which overlap it and may have more.

    The last lines are what the pod's output was, so from where they begin they are believed.
    """
    places = {line: place for place, line in enumerate(kept)}
    for line in tail:
        if line in places:
            return [*kept[: places[line]], *tail]
    return [*kept, *tail]


def numbered(paths: Iterable[str]) -> dict[int, str]:
    """Parts of a pod's log by number, in order; other objects are none."""
    found = {path.rpartition("/")[2].removesuffix(".log"): path for path in paths}
    return {int(name): path for name, path in sorted(found.items()) if name.isdecimal()}


def gap(before: int, after: int) -> bytes:
    """A line for parts that are gone between two numbers; empty if there are none."""
    n = after - before - 1
    return b'{"level":"warning","event":"a part of this log is gone","parts":%d}' % n if n else b""


def view(line: Line) -> dict[str, str | int]:
    """One line as the API shows it (ebbtide.api.LogLine)."""
    text = line.raw.decode("utf-8", "replace").rstrip("\r\n")
    return {
        "pod": line.source.pod,
        "role": line.source.role,
        "number": line.number,
        "text": text,
        "at": line.at,
    }
