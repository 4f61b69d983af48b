"""Samples that wait for a slot: a queue per actor, and shares for actors still to come (pure).

Queues hold sample numbers: first those that were put back, first come first served, then what was
dealt, group by group. An entry whose sample is no longer waiting is
skipped when it is reached, so nobody needs to search a queue.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import nlargest

_OTHERS = 4
"""Queues, longest first, that an idle actor asks: to weigh one takes a forecast of its samples."""

Pending = Callable[[int], bool]
SameGroup = Callable[[int, int], bool]
MayMove = Callable[[str, Sequence[int]], bool]
"""Whether these samples may leave the queue of that actor."""


class Waiting:
    """`same`: whether two samples are of one group, which should stay together."""

    def __init__(self, *, same: SameGroup) -> None:
        self._same = same
        self._queues: dict[str, deque[int]] = {}
        self._ahead: Counter[str] = Counter()
        self._shares: deque[deque[int]] = deque()
        self.kept_until = 0.0

    def deal(
        self, seated: Mapping[str, Sequence[int]], kept: Iterable[Sequence[int]], until: float
    ) -> None:
        """Give each actor its share; the others are `kept` for newcomers, until `until`."""
        self._queues = {name: deque(share) for name, share in seated.items()}
        self._ahead.clear()
        self._shares = deque(deque(share) for share in kept if share)
        self.kept_until = until

    def queued(self, name: str) -> Sequence[int]:
        """What waits for this actor, and maybe some that do not wait any more."""
        return self._queues.get(name, ())

    @property
    def kept(self) -> bool:
        """Whether shares wait for actors still to come."""
        return bool(self._shares)

    def join(self, name: str) -> None:
        """A newcomer takes a share, if one was kept."""
        if name not in self._queues:
            self._queues[name] = deque()
            self._claim(name)

    def leave(self, name: str) -> list[int]:
        """The actor takes nothing any more; returns what waited for it."""
        self._ahead.pop(name, None)
        return list(self._queues.pop(name, ()))

    def put_back(self, samples: Sequence[int], names: Sequence[str]) -> None:
        """Spread samples over `names`, over the first if they are few, before what was dealt."""
        if not samples:
            return
        if not names:
            self._shares.append(deque(samples))
            return
        cuts = [-(-len(samples) * i // len(names)) for i in range(len(names) + 1)]
        for name, start, end in zip(names, cuts[:-1], cuts[1:], strict=True):
            self._insert(name, samples[start:end])

    def _insert(self, name: str, samples: Sequence[int]) -> None:
        queue = self._queues.setdefault(name, deque())
        queue.rotate(-self._ahead[name])
        queue.extendleft(reversed(samples))
        queue.rotate(self._ahead[name])
        self._ahead[name] += len(samples)

    def take(self, name: str, room: int, pending: Pending) -> list[int]:
        """Up to `room` samples of the actor's own."""
        taken: list[int] = []
        queue = self._queues.setdefault(name, deque())
        while queue and len(taken) < room:
            sample = queue.popleft()
            self._ahead[name] -= self._ahead[name] > 0
            if pending(sample) and sample not in taken:
                taken.append(sample)
        return taken

    def drop(self, sample: int) -> None:
        """It is handed out past its queue."""
        for name, queue in self._queues.items():
            if sample in queue:
                self._ahead[name] -= queue.index(sample) < self._ahead[name]
                queue.remove(sample)
        for share in self._shares:
            if sample in share:
                share.remove(sample)
        self._shares = deque(share for share in self._shares if share)

    def find_more(self, name: str, now: float, may_move: MayMove) -> bool:
        """Fill the actor's empty queue: with what was kept for too long, or with another's."""
        if now >= self.kept_until and self._claim(name):
            return True
        others = (other for other in self._queues if other != name and self._queues[other])
        longest = nlargest(_OTHERS, others, key=lambda other: len(self._queues[other]))
        return any(self._hand_over(other, name, may_move) for other in longest)

    def _hand_over(self, victim: str, name: str, may_move: MayMove) -> bool:
        moved = self._later_half(self._queues[victim])
        if not may_move(victim, moved):
            return False
        for _ in moved:
            self._queues[victim].pop()
        self._ahead[victim] = min(self._ahead[victim], len(self._queues[victim]))
        self._queues[name].extend(moved)
        return True

    def _claim(self, name: str) -> bool:
        if self._shares:
            self._queues[name].extend(self._shares.popleft())
            return True
        return False

    def _later_half(self, source: deque[int]) -> list[int]:
        """The later half of `source`, without tearing the group at the cut."""
        queue = list(source)
        first = min(len(queue) // 2 + len(queue) % 2, len(queue) - 1)
        while first > 0 and self._same(queue[first - 1], queue[first]):
            first -= 1
        return queue[first:]
