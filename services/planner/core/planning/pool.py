"""The pool of actors as a plan sees it: bounds, who is ready and when, whom to release."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ebbtide.errors import Refused
from services.planner.core.planning.objective import Predicted
from services.planner.core.planning.profile import Profile
from services.planner.core.planning.rollout_time import Curve

Floats = npt.NDArray[np.floating[Any]]


class Loading(NamedTuple):
    """A replica on its way: expected to serve at `due`; from `deadline` on it no longer counts."""

    due: float
    deadline: float


class Member(NamedTuple):
    """One actor, for the choice of whom to release."""

    name: str
    state: str
    running: int


@dataclass(frozen=True)
class Pool:
    """Counts, and when each actor can begin.

    waits (maximum,): seconds until the n-th actor serves from now. lead: seconds until samples
    can be decoded at all, which hide that much of every wait.
    after: seconds from the end of this step until the next one decodes. patience: so long an idle
    actor is held; who would be idle for longer is let go and costs a `restart`. As they are by
    default actors go as soon as they have ended, for nothing.
    """

    minimum: int
    maximum: int
    serving: int
    loading: int
    parked: int
    waits: Floats
    lead: float
    after: float = 0.0
    patience: float = 0.0
    restart: float = 0.0

    @property
    def current(self) -> int:
        """Those that serve or will without further ado."""
        return self.serving + self.loading

    def bounds(self, items: int) -> tuple[int, int]:
        """The counts worth weighing for so many items: an actor without one is of no use."""
        high = min(self.maximum, max(items, 1))
        return min(max(self.minimum, 1), high), high

    def idle(self, busy: Floats, end: float) -> float:
        """What actors that are busy for so long cost from then on, in seconds of an actor."""
        gaps = np.maximum(end - busy, 0.0) + self.after
        return float(np.where(gaps > self.patience, self.restart, gaps).sum())

    def predict(self, curve: Curve) -> Predicted:
        """Times and held seconds of this plan; whoever serves first gets the slowest part."""
        busy = curve.seconds()
        waits = np.zeros(len(busy))
        waits[np.argsort(-busy, kind="stable")] = self.waits[: len(busy)]
        late = np.maximum(waits - self.lead, 0.0)
        steady = curve.makespan()
        delayed = (
            Curve(curve.ends + late[:, None], curve.chance).makespan() if late.any() else steady
        )
        return Predicted(
            actors=len(busy),
            seconds=delayed,
            steady_seconds=steady,
            actor_seconds=float(busy.sum() + waits.sum()),
            start_seconds=float(waits.sum()),
            idle_seconds=self.idle(busy, steady),
        )


def make_pool(
    *,
    minimum: int,
    maximum: int,
    quota: int | None = None,
    serving: int,
    loading: Iterable[Loading] = (),
    parked: int = 0,
    profile: Profile | None,
    now: float,
    lead: float = 0.0,
    after: float = 0.0,
    patience: float = 0.0,
    restart: float = 0.0,
) -> Pool:
    """The pool at `now`. Never beyond `quota`; raises Refused where the bounds cross."""
    if not 0 <= minimum <= maximum:
        raise Refused(f"minimum {minimum} and maximum {maximum} cross", field="/minimum")
    most = max(maximum if quota is None else min(maximum, quota), 0)
    coming = sorted(max(one.due - now, 0.0) for one in loading if one.deadline > now)
    wake = profile.file.wake_seconds if profile else 0.0
    cold = profile.startup_seconds if profile else 0.0
    waits = sorted([*[0.0] * serving, *coming, *[wake] * parked, *[cold] * most])
    return Pool(
        minimum=min(minimum, most),
        maximum=most,
        serving=serving,
        loading=len(coming),
        parked=parked,
        waits=np.asarray(waits[:most]),
        lead=lead,
        after=after,
        patience=patience,
        restart=restart,
    )


def release(members: Sequence[Member], keep: int) -> list[str]:
    """Names to release so that `keep` remain: those first whose going costs least.

    Parked and loading ones before serving ones, idle before busy; ties by the later name, so that
    the oldest names stay.
    """
    surplus = max(len(members) - max(keep, 0), 0)
    by_name = sorted(members, key=lambda one: one.name, reverse=True)
    ranked = sorted(by_name, key=lambda one: (one.state == "serving", one.running))
    return [one.name for one in ranked[:surplus]]
