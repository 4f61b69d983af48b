"""The prefill service as the planner knows it, and what prompts cost in tokens (pure).

Like an actor it is told which policy to load until its heartbeats show it, and only what they
show counts: samples are sent to it for KV only while it holds the step's policy.
"""

from __future__ import annotations

import msgspec

from ebbtide.reports import Cause, PrefillCounts
from ebbtide.wire import (
    CommandReply,
    EngineStats,
    Heartbeat,
    KvKey,
    LoadPolicy,
    Ok,
    PolicyRef,
    PrefillBeat,
    Ref,
)
from services.planner.core.config import Patience
from services.planner.core.effects import PREFILL
from services.planner.core.pen import Pen

GRACE = 2.0
"""Seconds at most for which ready actors wait for the service to load the policy."""


class _Service(msgspec.Struct):
    """`number` of the last heartbeat; `due`: the first that must show what was loaded last."""

    beat: PrefillBeat
    heard: float
    loading: int = 0
    due: int = 0
    pause_until: float = 0.0

    @property
    def coming(self) -> bool:
        """Whether it loads: it was told to, has not shown yet that it does, or shows it."""
        told = bool(self.loading) or self.beat.number < self.due
        return (told or self.beat.state == "loading") and not self.beat.load_failure


class Prefills:
    """Those that were heard within a lease."""

    def __init__(self, *, pen: Pen, patience: Patience) -> None:
        self._pen, self._patience = pen, patience
        self._policy: tuple[PolicyRef, Ref] | None = None
        self._grace_until: float | None = None
        self._services: dict[str, _Service] = {}

    def want(self, policy: PolicyRef, index: Ref) -> None:
        """From now on it should hold `policy`; it is told at once."""
        self._policy, self._grace_until = (policy, index), None
        for name in self._services:
            self._load(name)

    def hear(self, beat: PrefillBeat) -> bool:
        """Take in a heartbeat; False if it was old."""
        known = self._services.get(beat.instance)
        if known is None or known.beat.incarnation != beat.incarnation:
            self._services[beat.instance] = _Service(beat, self._pen.reachable)
        elif beat.number <= known.beat.number:
            return False
        else:
            known.beat, known.heard = beat, self._pen.reachable
        self._load(beat.instance)
        return True

    def replied(self, call: int, reply: CommandReply | None) -> None:
        """The answer to a LoadPolicy; None when there was none."""
        for service in self._services.values():
            if service.loading == call:
                service.loading = 0
                if isinstance(reply, Ok):
                    service.due = reply.as_of
                else:
                    service.pause_until = self._pen.now + self._patience.retry

    def lapse(self) -> None:
        """Forget what was not heard for a lease."""
        since = self._pen.reachable - self._patience.lease
        self._services = {n: s for n, s in self._services.items() if s.heard >= since}

    def kv(self, policy: PolicyRef, prompt_tokens: int) -> KvKey | None:
        """What an actor may ask a ticket for: the prompt's KV, all of it but the last token."""
        if prompt_tokens < 2:
            return None
        for service in self._services.values():
            beat = service.beat
            if beat.state == "serving" and beat.policy == policy and beat.layout:
                return KvKey(policy.digest, "", prompt_tokens - 1, beat.layout)
        return None

    @property
    def there(self) -> bool:
        """Whether one is heard that stays."""
        return any(service.beat.state != "draining" for service in self._services.values())

    def is_near(self) -> bool:
        """Whether samples should wait a moment, the service being about to hold the policy.

        Actors load as long as it does, and whoever is first would compute alone.
        """
        if self._policy is None or self.kv(self._policy[0], 2) is not None:
            return False
        if not any(service.coming for service in self._services.values()):
            return False
        if self._grace_until is None:
            self._grace_until = self._pen.now + GRACE
        return self._pen.now < self._grace_until

    def _load(self, name: str) -> None:
        service = self._services[name]
        beat = service.beat
        if self._policy is None or beat.policy == self._policy[0]:
            return
        ready = beat.state in ("serving", "empty") and self._pen.now >= service.pause_until
        if ready and not service.loading and beat.number >= service.due:
            command = LoadPolicy(self._pen.fence, *self._policy)
            service.loading = self._pen.send(PREFILL + name, command, self._patience.load)


def prefill_cause(beat: PrefillBeat) -> Cause:
    """What the service does, by its heartbeat."""
    if beat.state in ("loading", "draining"):
        return "loading" if beat.state == "loading" else "draining"
    return "busy" if beat.waiting else "idle"


class PrefillMeter:
    """Sums up what heartbeats count since each process began, step by step.

    `takes_over`: what processes counted before they are first heard is an earlier planner's.
    """

    def __init__(self, *, takes_over: bool = False) -> None:
        self._takes_over = takes_over
        self._last: dict[str, tuple[str, EngineStats]] = {}
        self._actors = self._service = EngineStats()

    def hear(self, beat: Heartbeat | PrefillBeat) -> None:
        """Take in a heartbeat that is not old."""
        name = beat.actor if isinstance(beat, Heartbeat) else beat.instance
        known = (beat.incarnation, beat.stats) if self._takes_over else ("", EngineStats())
        incarnation, last = self._last.get(name, known)
        before = last if incarnation == beat.incarnation else EngineStats()
        self._last[name] = (beat.incarnation, beat.stats)
        if isinstance(beat, Heartbeat):
            self._actors = _plus(self._actors, before, beat.stats)
        else:
            self._service = _plus(self._service, before, beat.stats)

    def taken(self) -> PrefillCounts:
        """What was counted since the last call."""
        actors, service = self._actors, self._service
        self._actors = self._service = EngineStats()
        imported = actors.prefill_imported
        return PrefillCounts(
            needed=actors.prefill_tokens + actors.prefill_shared + imported,
            computed=actors.prefill_tokens + service.prefill_tokens,
            in_service=service.prefill_tokens,
            imported=imported,
            saved_by_caching=actors.prefill_shared,
            saved_by_dedup=imported - service.prefill_tokens,
            actor_seconds=actors.prefill_seconds,
            service_seconds=service.prefill_seconds,
        )


def _plus(total: EngineStats, before: EngineStats, after: EngineStats) -> EngineStats:
    """`total` and what a process counted from `before` to `after`, of prompts' tokens."""
    return EngineStats(
        prefill_tokens=total.prefill_tokens + max(0, after.prefill_tokens - before.prefill_tokens),
        prefill_shared=total.prefill_shared + max(0, after.prefill_shared - before.prefill_shared),
        prefill_imported=total.prefill_imported
        + max(0, after.prefill_imported - before.prefill_imported),
        prefill_seconds=total.prefill_seconds
        + max(0.0, after.prefill_seconds - before.prefill_seconds),
    )
