"""The learner gang as the planner sees it: one command at a time, asked again until done (pure)."""

from __future__ import annotations

import msgspec

from ebbtide.wire import (
    Learn,
    Learned,
    LearnerBeat,
    LearnerReply,
    PolicyRef,
    Ref,
    Refusal,
    Save,
    Saved,
    Working,
)

_AFTER_EXPECTED = 0.1
_SAVE_TRIES = 5
"""A checkpoint that storage refuses this often is given up: learning must go on."""


class Order(msgspec.Struct):
    """The command that the learner works on. `call` 0: it is to be asked (again) at `ask_at`.

    `failures`: in a row; `refusals`: all of them, for it works again between two.
    """

    command: Learn | Save
    since: float
    ask_at: float
    call: int = 0
    failures: int = 0
    refusals: int = 0


class LearnerDesk:
    """`deadline`: seconds a command may take; `poll` and `retry` as in Patience."""

    def __init__(self, *, deadline: float, poll: float, retry: float) -> None:
        self._deadline, self._poll, self._retry = deadline, poll, retry
        self._usual: dict[type, float] = {}
        self.beat: LearnerBeat | None = None
        self.order: Order | None = None

    @property
    def idle(self) -> bool:
        """Whether it can be given a command."""
        return self.order is None

    @property
    def saving(self) -> bool:
        """Whether it writes a checkpoint."""
        return self.order is not None and isinstance(self.order.command, Save)

    def index_of(self, policy: PolicyRef) -> Ref | None:
        """Where `policy` is published, if the learner's present one is it."""
        beat = self.beat
        return beat.index if beat and beat.policy == policy else None

    def hear(self, beat: LearnerBeat, now: float) -> None:
        """A heartbeat of this attempt's gang; news make the planner ask at once."""
        news = self.beat is not None and (beat.policy, beat.phase) != (
            self.beat.policy,
            self.beat.phase,
        )
        self.beat = beat
        if news and self.order and beat.phase == "idle":
            self.order.ask_at = now

    def give(self, command: Learn | Save, now: float) -> None:
        """Begin `command`."""
        assert self.order is None, "the learner does one thing at a time"
        self.order = Order(command=command, since=now, ask_at=now)

    def to_ask(self, now: float) -> Order | None:
        """The order, if it is time to ask for it; the caller fills in `call`."""
        order = self.order
        return order if order and not order.call and order.ask_at <= now else None

    def late(self, now: float) -> bool:
        """Whether the present order ran out of time."""
        return self.order is not None and now - self.order.since > self._deadline

    def answered(
        self, call: int, reply: LearnerReply | None, now: float
    ) -> Learned | Saved | Refusal | None:
        """Take in a reply; returns what ended the order, or None while it goes on."""
        order = self.order
        if order is None or order.call != call:
            return None
        order.call = 0
        if _ends(reply, order):
            self._usual[type(order.command)] = now - order.since
            self.order = None
            assert not isinstance(reply, Working)
            return reply
        order.ask_at = now + self._pause(order, reply, now)
        return None

    def give_up(self) -> None:
        """Wait for the present order no longer."""
        self.order = None

    def _pause(self, order: Order, reply: LearnerReply | None, now: float) -> float:
        if reply is None or isinstance(reply, Refusal):
            order.failures += 1
            order.refusals += reply is not None
            return min(self._retry * 2.0 ** (order.failures - 1), self._poll)
        order.failures = 0
        expected = order.since + self._usual.get(type(order.command), 0.0) - now
        soon = max(_AFTER_EXPECTED, expected + _AFTER_EXPECTED)
        return min(soon if expected > -1.0 else self._poll, self._poll)


def _ends(reply: LearnerReply | None, order: Order) -> bool:
    """Whether `reply` is the last word on the order and not an echo of an older one."""
    command = order.command
    match reply:
        case Learned(token=token):
            return isinstance(command, Learn) and token == command.token
        case Saved(attempt=attempt, step=step):
            fits = isinstance(command, Save) and step == command.step
            return fits and attempt == command.fence.attempt
        case Refusal(code="temporary"):
            return isinstance(command, Save) and order.refusals >= _SAVE_TRIES
        case Refusal():
            return True
    return False
