"""Samples that wait for a slot: a queue per actor, and shares for actors still to come (pure).

Queues hold sample numbers, group by group. An entry whose sample is no longer waiting is
skipped when it is reached, so nobody needs to search a queue.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

Pending = Callable[[int], bool]
SameGroup = Callable[[int, int], bool]


class Waiting:
    """`same`: whether two samples are of one group, which should stay together."""

    def __init__(self, *, same: SameGroup) -> None:
        self._same = same
        self._queues: dict[str, deque[int]] = {}
        self._shares: deque[deque[int]] = deque()
        self._reserved_until = 0.0

    def deal(self, shares: Sequence[Sequence[int]], names: Sequence[str], until: float) -> None:
        """Give a share to each of `names`; keep the rest for newcomers, until `until`."""
        self._queues = {name: deque() for name in names}
        self._shares = deque(deque(share) for share in shares if share)
        self._reserved_until = until
        for name in names:
            self._claim(name)

    def join(self, name: str) -> None:
        """A newcomer takes a share, if one was kept."""
        if name not in self._queues:
            self._queues[name] = deque()
            self._claim(name)

    def leave(self, name: str) -> list[int]:
        """The actor takes nothing any more; returns what waited for it."""
        return list(self._queues.pop(name, ()))

    def put_back(self, samples: Sequence[int], names: Sequence[str]) -> None:
        """Spread samples that lost their actor over `names`, before what waits there."""
        if not samples:
            return
        if not names:
            self._shares.append(deque(samples))
            return
        cuts = [len(samples) * i // len(names) for i in range(len(names) + 1)]
        for name, start, end in zip(names, cuts[:-1], cuts[1:], strict=True):
            self._queues.setdefault(name, deque()).extendleft(reversed(samples[start:end]))

    def take(self, name: str, room: int, pending: Pending, now: float) -> list[int]:
        """Up to `room` samples for `name`: its own, then unclaimed ones, then another's."""
        taken: list[int] = []
        while len(taken) < room:
            queue = self._queues.setdefault(name, deque())
            if not queue and not self._find_more(name, now):
                break
            sample = queue.popleft()
            if pending(sample):
                taken.append(sample)
        return taken

    def _claim(self, name: str) -> bool:
        if self._shares:
            self._queues[name].extend(self._shares.popleft())
            return True
        return False

    def _find_more(self, name: str, now: float) -> bool:
        if now >= self._reserved_until and self._claim(name):
            return True
        longest = max(self._queues, key=lambda other: len(self._queues[other]), default=name)
        return self._move_half(self._queues[longest], self._queues[name])

    def _move_half(self, source: deque[int], target: deque[int]) -> bool:
        """Move the later half of `source`, without tearing the group at the cut."""
        if not source:
            return False
        moved = deque([source.pop()])
        half = len(source) // 2
        while source and (len(source) > half or self._same(source[-1], moved[0])):
            moved.appendleft(source.pop())
        target.extend(moved)
        return True
