"""What each pod's time was used for, by cause (pure; protocol.md 11).

Fed by heartbeats, and for the start-up of each pod by what the operator says: from its start
until it is first heard. Other time that no heartbeat explains is not spread over causes: the operator knows
how long pods were held, and the difference is shown as unattributed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from ebbtide.reports import Cause
from ebbtide.wire import Heartbeat, LearnerBeat, Spent

Pod = tuple[str, str]
"""Role and pod name."""


class Stretch(msgspec.Struct, frozen=True):
    """A pod did one thing from `start` to `end`, on the planner's clock."""

    cause: Cause
    start: float
    end: float


class Meter:
    """Stretches of all pods since the last `cut`."""

    def __init__(self) -> None:
        self._now: dict[Pod, tuple[Cause, float]] = {}
        self._heard: dict[Pod, float] = {}
        self._first: dict[Pod, float] = {}
        self._done: dict[Pod, list[Stretch]] = defaultdict(list)
        self._tokens: dict[str, int] = defaultdict(int)
        self._wasted: dict[str, int] = defaultdict(int)

    def mark(self, role: str, pod: str, cause: Cause, now: float) -> None:
        """From now on the pod does `cause`."""
        self._heard[role, pod] = now
        self._first.setdefault((role, pod), now)
        current = self._now.get((role, pod))
        if current is None:
            self._now[role, pod] = (cause, now)
        elif current[0] != cause:
            self._close((role, pod), now)
            self._now[role, pod] = (cause, now)

    def began(self, role: str, pod: str, since: float) -> None:
        """The pod was started at `since`; until it is first heard it starts up."""
        first = self._first.get((role, pod))
        if first is None:
            self._now.setdefault((role, pod), ("startup", since))
        elif first > since:
            self._done[role, pod].insert(0, Stretch("startup", since, first))

    def stop(self, role: str, pod: str, at: float) -> None:
        """The pod is gone since `at`."""
        if (role, pod) in self._now:
            self._close((role, pod), at)
            del self._now[role, pod]
            self._heard.pop((role, pod), None)

    def lose(self, role: str, pod: str) -> None:
        """The pod is gone since it was last heard."""
        if (heard := self._heard.get((role, pod))) is not None:
            self.stop(role, pod, heard)

    def expire(self, now: float, after: float) -> None:
        """Pods that were not heard for `after` seconds are gone since they were last heard."""
        for role, pod in [p for p, heard in self._heard.items() if now - heard > after]:
            self.lose(role, pod)

    def open_seconds(self, now: float) -> dict[tuple[str, str], float]:
        """Seconds since the last `cut`, by role and cause."""
        seconds: dict[tuple[str, str], float] = defaultdict(float)
        for (role, _), done in self._done.items():
            for stretch in done:
                seconds[role, stretch.cause] += stretch.end - stretch.start
        for (role, _), (cause, since) in self._now.items():
            seconds[role, cause] += max(0.0, now - since)
        return seconds

    def drew(self, pod: str, tokens: int) -> None:
        """The actor's tokens were of use."""
        self._tokens[pod] += tokens

    def wasted(self, pod: str, tokens: int) -> None:
        """The actor's tokens were drawn for nothing."""
        self._wasted[pod] += tokens

    def cut(self, now: float) -> dict[Pod, list[Stretch]]:
        """All stretches until now; what goes on begins a new one."""
        for pod, (cause, _) in list(self._now.items()):
            self._close(pod, now)
            self._now[pod] = (cause, now)
        done, self._done = dict(self._done), defaultdict(list)
        return done

    def waste_shares(self) -> dict[str, float]:
        """Per actor, the share of its drawn tokens that was for nothing; then counts anew."""
        pods = {pod for pod, tokens in self._wasted.items() if tokens}
        shares = {p: self._wasted[p] / (self._wasted[p] + self._tokens[p]) for p in pods}
        self._tokens.clear()
        self._wasted.clear()
        return shares

    def _close(self, pod: Pod, now: float) -> None:
        cause, since = self._now[pod]
        if now > since:
            self._done[pod].append(Stretch(cause, since, now))


def actor_cause(beat: Heartbeat) -> Cause:
    """What an actor does, by its heartbeat. One that only holds KV for a reader is draining."""
    if beat.state in ("loading", "draining"):
        return "loading" if beat.state == "loading" else "draining"
    if beat.state == "asleep":
        return "parked"
    if beat.running or beat.stats.running:
        return "busy"
    return "draining" if beat.holding else "idle"


def learner_cause(beat: LearnerBeat) -> Cause:
    """What the learner gang does, by its heartbeat."""
    if beat.phase == "starting":
        return "loading"
    return "idle" if beat.phase == "idle" else "busy"


def spent(
    step: int, stretches: dict[Pod, list[Stretch]], waste: dict[str, float]
) -> Iterator[Spent]:
    """One record per pod and cause. An actor's wasted tokens turn their share of busy time."""
    for (role, pod), done in sorted(stretches.items()):
        seconds = _by_cause(done)
        share = waste.get(pod, 0.0) if role == "decode" else 0.0
        if share and "busy" in seconds:
            seconds["wasted"] = seconds["busy"] * share
            seconds["busy"] -= seconds["wasted"]
        yield from (Spent(step, role, pod, c, s) for c, s in sorted(seconds.items()) if s > 0)


def _by_cause(done: Sequence[Stretch]) -> dict[str, float]:
    seconds: dict[str, float] = defaultdict(float)
    for stretch in done:
        seconds[stretch.cause] += stretch.end - stretch.start
    return seconds
