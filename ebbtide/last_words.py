"""What the last lines of a process say, as one sentence for people (pure).

The lines are those of `ebbtide.logs` among others that libraries wrote: the last structured line
counts if it is an error, else the very last line.
"""

from __future__ import annotations

from typing import Any

import msgspec

_GRAVE = frozenset({"error", "critical"})
_CUT = "its last line was cut; its log has more"


def sentence(tail: str) -> str:
    """The reason in `tail`; empty if it has no words, never JSON.

    A structured line says its `why`, else its event with the error. The front of a long line may
    be lost on the way (Kubernetes keeps 2 KiB).
    """
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    if not lines:
        return ""
    known = [found for line in lines if (found := _structured(line))]
    if known and known[-1].get("level") in _GRAVE:
        return _words(known[-1])
    last = _structured(lines[-1])
    if last:
        return _words(last)
    return _CUT if len(lines) == 1 and _is_cut(lines[-1]) else lines[-1]


def _structured(line: str) -> dict[str, Any]:
    """Fields of a line of `ebbtide.logs`; empty for any other."""
    if not line.startswith("{"):
        return {}
    try:
        found = msgspec.json.decode(line)
    except msgspec.DecodeError:
        return {}
    return found if isinstance(found, dict) and "event" in found else {}


def _words(line: dict[str, Any]) -> str:
    error = f": {line['error']}" if line.get("error") else ""
    return " ".join(str(line.get("why") or f"{line['event']}{error}").split())


def _is_cut(line: str) -> bool:
    return line.startswith('{"at"') or line.endswith(('"}', '"]}'))
