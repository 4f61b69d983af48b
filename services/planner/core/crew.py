"""The registered actors: leases, what each was given, what its heartbeats prove (pure).

Heartbeats are the inventory. They may be lost, repeated or late; only a newer one of the same
process counts, and a new process of an actor (its incarnation) proves that the old one ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from ebbtide.wire import Dispatch, Heartbeat, PolicyRef, unpack_ints
from services.planner.core.samples import code_of

CONFIRMED = 0
"""The actor is known to have the hand-out: any later heartbeat without it proves a loss."""
UNANSWERED = -1
"""Submitted, and nothing heard yet: a heartbeat without it proves nothing."""
UNTOLD = -1.0
"""It sleeps unasked, since a moment that is still to be noted."""


class Actor(msgspec.Struct):
    """One decode actor.

    `out`: code of each hand-out that it should have -> CONFIRMED, UNANSWERED, or the number of
    the first heartbeat that must show it. `in_flight`: those whose Submit is on its way.
    `loading`: the call of a LoadPolicy on its way, or 0; `loaded_at`: the number of the first
    heartbeat that must show what was loaded last. `leaving`: it was let go and gets nothing more.
    `looked_at`: when it last looked for samples in other queues. `reserved`: samples that are on
    their way to it from another actor.

    `parked`, since `parked_at`: it sleeps, or was told to by the call `parking` (0: answered), which
    the heartbeat of number `parked_by` must show. `woken_at`: it was woken, and does not serve yet.
    `awake_until`: it is not told to sleep before.
    """

    name: str
    heard: float
    incarnation: str = ""
    ended: set[str] = msgspec.field(default_factory=set)
    number: int = -1
    state: str = "unheard"
    policy: PolicyRef | None = None
    slots: int = 0
    out: dict[int, int] = msgspec.field(default_factory=dict)
    in_flight: set[int] = msgspec.field(default_factory=set)
    loading: int = 0
    loaded_at: int = 0
    pause_until: float = 0.0
    resubmit_at: float = 0.0
    failures: int = 0
    leaving: bool = False
    looked_at: float = -1.0
    reserved: set[int] = msgspec.field(default_factory=set)
    parked: bool = False
    parked_at: float = 0.0
    parking: int = 0
    parked_by: int = 0
    woken_at: float | None = None
    awake_until: float = 0.0

    @property
    def works(self) -> bool:
        """Whether it takes or will take samples."""
        return self.state not in ("draining", "unheard") and not (self.leaving or self.parked)

    @property
    def loads(self) -> bool:
        """Whether it takes another policy now; one that is parked is left asleep."""
        return self.state in ("serving", "empty", "asleep") and not self.parked

    @property
    def busy(self) -> bool:
        """Whether it has samples, or is woken for some."""
        return bool(self.out or self.reserved) or self.woken_at is not None

    def serves(self, policy: PolicyRef) -> bool:
        """Whether it takes samples of `policy` now."""
        return self.state == "serving" and self.policy == policy and self.works

    def takes(self, policy: PolicyRef, now: float) -> bool:
        """Whether it gets samples of `policy` now: one that refused has a moment of rest."""
        return self.serves(policy) and now >= self.pause_until

    def forget(self, codes: Sequence[int]) -> None:
        """It has these hand-outs no more."""
        for code in codes:
            self.out.pop(code, None)
        self.in_flight.difference_update(codes)

    def unanswered(self) -> list[int]:
        """Hand-outs whose Submit must be sent again."""
        return [c for c, due in self.out.items() if due == UNANSWERED and c not in self.in_flight]


class Run(NamedTuple):
    """A running hand-out as a heartbeat shows it."""

    code: int
    dispatch: Dispatch
    tokens: int


class Sighting(msgspec.Struct, frozen=True):
    """What one heartbeat proves. `lost`: codes that will never end."""

    actor: Actor
    running: list[Run]
    outbox: list[tuple[int, Dispatch]]
    lost: list[int]


class Crew:
    """All actors whose lease holds.

    Leases run by a clock that stands still while the broker is away: who cannot be heard then has
    lost nothing.
    """

    def __init__(self, *, lease: float) -> None:
        self._lease = lease
        self._actors: dict[str, Actor] = {}

    def __iter__(self) -> Iterator[Actor]:
        return iter(self._actors.values())

    def __len__(self) -> int:
        return len(self._actors)

    def get(self, name: str) -> Actor | None:
        """The actor, if its lease holds."""
        return self._actors.get(name)

    def working(self) -> list[Actor]:
        """Actors that take or will take samples, by name."""
        return sorted((a for a in self if a.works), key=lambda a: a.name)

    def heirs(self, of: str, queued: Callable[[str], int]) -> list[str]:
        """`of` alone, if it works; else all that work, the least loaded first.

        `queued`: how many samples wait for an actor.
        """
        there = sorted(self.working(), key=lambda one: len(one.out) + queued(one.name))
        own = [one.name for one in there if one.name == of]
        return own or [one.name for one in there]

    def expect(self, name: str, code: int, now: float) -> None:
        """The ledger says that `name` has this hand-out; it gets a full lease to show it."""
        actor = self._actors.setdefault(name, Actor(name=name, heard=now))
        actor.out[code] = CONFIRMED

    def hear(self, beat: Heartbeat, now: float) -> Sighting | None:
        """Take in a heartbeat; None if it is old."""
        actor = self._actors.get(beat.actor)
        if actor is None:
            actor = self._actors[beat.actor] = Actor(name=beat.actor, heard=now)
        if _is_old(actor, beat):
            return None
        fresh = _update(actor, beat, now)
        running, outbox = _runs(beat), [(code_of(d), d) for d in beat.outbox]
        seen = {run.code for run in running} | {code for code, _ in outbox}
        return Sighting(actor, running, outbox, _missing(actor, seen, beat.number, fresh=fresh))

    def lapsed(self, now: float) -> list[Actor]:
        """Drop and return actors that were not heard for a lease."""
        gone = [actor for actor in self if now - actor.heard > self._lease]
        return [self._actors.pop(actor.name) for actor in gone]

    def gone(self, name: str) -> Actor | None:
        """Drop and return an actor that is known to have ended."""
        return self._actors.pop(name, None)


def _is_old(actor: Actor, beat: Heartbeat) -> bool:
    if beat.incarnation in actor.ended:
        return True
    return beat.incarnation == actor.incarnation and beat.number <= actor.number


def _update(actor: Actor, beat: Heartbeat, now: float) -> bool:
    """Store what the heartbeat says; whether it is the first of another process."""
    fresh = beat.incarnation != actor.incarnation
    if fresh and actor.incarnation:
        actor.ended.add(actor.incarnation)
        actor.loading, actor.loaded_at = 0, 0
        actor.parked, actor.parking, actor.parked_by, actor.woken_at = False, 0, 0, None
        actor.in_flight.clear()
    actor.incarnation, actor.number, actor.heard = beat.incarnation, beat.number, now
    actor.state, actor.policy = beat.state, beat.policy
    actor.slots = beat.stats.slots or actor.slots
    if actor.state == "asleep" and actor.woken_at is None and not actor.parked:
        actor.parked, actor.parked_at = True, UNTOLD
    return fresh


def _runs(beat: Heartbeat) -> list[Run]:
    rows = unpack_ints(beat.running).reshape(-1, 4).tolist()
    runs = []
    for attempt, epoch, seq, tokens in rows:
        dispatch = Dispatch(attempt, epoch, seq)
        runs.append(Run(code_of(dispatch), dispatch, tokens))
    return runs


def _missing(actor: Actor, seen: set[int], number: int, *, fresh: bool) -> list[int]:
    lost = []
    for code, due in actor.out.items():
        if code in seen:
            actor.out[code] = CONFIRMED
        elif fresh or (due != UNANSWERED and number >= due):
            lost.append(code)
    return lost
