"""Whether waiting samples would end sooner on another actor (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from services.planner.core.samples import OUT, WAITING, OpenStep

_LEAST = 0.1
"""Of what was expected, at least so much is thought to come of an answer that got longer."""


class Workload:
    """`expected` (samples,): tokens of each answer, as when the step was opened."""

    def __init__(self, step: OpenStep, expected: Sequence[float]) -> None:
        self._step, self._expected = step, expected

    def rest(self, sample: int) -> float:
        """Tokens still to come."""
        if self._step.states[sample] not in (WAITING, OUT):
            return 0.0
        known = self._step.journals[sample]
        whole = self._expected[sample]
        return max(whole - (known[1] if known else 0), _LEAST * whole)

    def end(self, samples: Iterable[int], slots: int) -> float:
        """When one actor is through with these, in tokens one after the other."""
        rests = [self.rest(sample) for sample in samples]
        return max(max(rests, default=0.0), sum(rests) / max(slots, 1))

    def sooner(
        self, mine: Sequence[int], theirs: Sequence[int], moved: Sequence[int], slots: int
    ) -> bool:
        """Whether an actor with `mine` and `moved` ends before the one that has them in `theirs`.

        One that was given few long answers so stays with few: more would slow them down.
        """
        return self.end([*mine, *moved], slots) < self.end(theirs, slots)
