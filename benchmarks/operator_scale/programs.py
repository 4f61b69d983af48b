"""CPU seconds by program: who of all that share the cores has used them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
OTHERS = "everything else on the machine"
OWN = "benchmark"
_PYTHON = "operator"


@dataclass(frozen=True)
class Times:
    """CPU seconds so far: of each program that this process has started, its own, all others'."""

    seconds: Mapping[str, float]

    def since(self, before: Times) -> dict[str, float]:
        """What was used meanwhile, the most first."""
        used = {name: n - before.seconds.get(name, 0.0) for name, n in self.seconds.items()}
        return dict(sorted(used.items(), key=lambda one: -one[1]))


def times() -> Times:
    """As the kernel counts them now."""
    found: dict[str, float] = {}
    for name, _, ticks in _ours():
        found[name] = found.get(name, 0.0) + ticks / _TICKS
    found[OTHERS] = _busy() - sum(found.values())
    return Times(found)


def ended() -> list[str]:
    """Programs that this process has started and that are no more: nothing good will come then."""
    return sorted(name for name, state, _ in _ours() if state == "Z")


def _ours() -> Iterator[tuple[str, str, int]]:
    """Name, state and ticks of CPU of this process and of each that it has started."""
    own = os.getpid()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            head, _, tail = path.read_text().rpartition(")")
        except OSError:
            continue  # it has ended meanwhile
        words = tail.split()
        pid, name = int(head.split(" ", 1)[0]), head.partition("(")[2]
        if own in (pid, int(words[1])):
            name = OWN if pid == own else _PYTHON if name.startswith("python") else name
            yield name, words[0], int(words[11]) + int(words[12])


def _busy() -> float:
    """Of all cores together, whoever used them."""
    line = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    user, nice, system, _, _, irq, soft, *_ = (int(word) for word in line)
    return (user + nice + system + irq + soft) / _TICKS
