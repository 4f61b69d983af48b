"""Which pods a job had, and where a reader of their logs is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from ebbtide import labels
from ebbtide.ports import Resource
from ebbtide.usage import Usage


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


def pods_of(
    living: Iterable[Resource], usages: Iterable[Usage], *, role: str | None, pod: str | None
) -> list[PodRole]:
    """The job's pods, ended ones too, filtered, in order of role and name."""
    found = {PodRole(_role(p.metadata.labels), p.metadata.name) for p in living}
    found |= {PodRole(usage.role, usage.pod) for usage in usages}
    chosen = [p for p in found if role in (None, p.role) and pod in (None, p.pod)]
    return sorted(chosen)


def _role(own: Mapping[str, str]) -> str:
    return own.get(labels.ROLE, "")


def line(source: PodRole, number: int, raw: bytes) -> dict[str, str | int]:
    """One line as the API shows it (ebbtide.api.LogLine)."""
    text = raw.decode("utf-8", "replace").rstrip("\r\n")
    return {"pod": source.pod, "role": source.role, "number": number, "text": text}
