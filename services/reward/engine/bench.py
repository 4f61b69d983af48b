"""What judges answers inside a worker, whatever it is: functions and rules, or a reward model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from ebbtide.rewards.outcomes import Answer, Judged


class Bench(Protocol):
    """Loaded once; a worker is a process that has it."""

    @property
    def versions(self) -> Mapping[str, str]:
        """Of what judges."""
        ...

    def begin(self) -> None:
        """Called in the worker, before its first answer."""
        ...

    def judge(self, answers: Sequence[Answer]) -> Iterator[Judged]:
        """One verdict for each answer, in order, as soon as it is there."""
        ...
