"""What a bad network does, drawn from the caller's seeded generator."""

from __future__ import annotations

from random import Random
from typing import Any


class Chaos:
    """Loss, repetition and delay of messages; all fields may be changed while it runs.

    `lose` and `repeat` are probabilities per message. `delay` is the longest delay in seconds,
    drawn evenly, so later messages overtake earlier ones.
    """

    def __init__(
        self, rng: Random, *, lose: float = 0.0, repeat: float = 0.0, delay: float = 0.0
    ) -> None:
        self._rng = rng
        self.lose = lose
        self.repeat = repeat
        self.delay = delay

    def calm(self) -> None:
        """Nothing goes wrong from now on."""
        self.lose = self.repeat = self.delay = 0.0

    def lost(self) -> bool:
        return self.lose > 0 and self._rng.random() < self.lose

    def copies(self) -> int:
        return 2 if self.repeat > 0 and self._rng.random() < self.repeat else 1

    def pause(self) -> float:
        return self._rng.uniform(0.0, self.delay) if self.delay > 0 else 0.0

    def either(self) -> bool:
        return self._rng.random() < 0.5

    def shuffle(self, items: list[Any]) -> None:
        """Reorder in place if there is any delay at all."""
        if self.delay > 0:
            self._rng.shuffle(items)


def calm() -> Chaos:
    """A network without faults."""
    return Chaos(Random(0))  # noqa: S311 - it draws nothing
