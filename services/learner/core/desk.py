"""Rank 0's answers to the planner: fences, idempotence, one piece of work at a time."""

from __future__ import annotations

from ebbtide.wire import (
    Fence,
    Learn,
    Learned,
    LearnerCommand,
    LearnerReply,
    LearnToken,
    Refusal,
    Save,
    Saved,
    Working,
)

Outcome = Learned | Saved | Refusal
FINAL = ("invalid", "policy")
"""Refusals that trying again cannot change; others are given once, then the work is redone."""


class Desk:
    """Decides what to say to each command and whether it starts work.

    `last`: the answer that a checkpoint brought along, if any.
    """

    def __init__(self, *, attempt: int, step: int = 0, last: Learned | None = None) -> None:
        self._attempt = attempt
        self._seen: Fence | None = None
        self._step = step
        self._last = last
        self._saved: dict[int, Saved] = {}
        self._refused: dict[LearnToken | int, Refusal] = {}
        self._running: LearnerCommand | None = None

    @property
    def phase(self) -> str:
        """Idle | learning | saving."""
        match self._running:
            case Learn():
                return "learning"
            case Save():
                return "saving"
            case _:
                return "idle"

    @property
    def step(self) -> int:
        """Steps that the current state contains."""
        return self._step

    @property
    def saved(self) -> tuple[Saved, ...]:
        """Every checkpoint whose shards this attempt wrote, oldest first."""
        return tuple(self._saved.values())

    def receive(self, command: LearnerCommand) -> tuple[LearnerReply, LearnerCommand | None]:
        """Return the reply, and the command itself if its work must start now."""
        fenced = self._fenced(command.fence)
        if fenced:
            return fenced, None
        answer = self._answered(command)
        if answer:
            return answer, None
        if self._running is not None:
            return Working(self.phase), None
        stale = self._stale(command)
        if stale:
            return stale, None
        self._running = command
        return Working(self.phase), command

    def finish(self, command: LearnerCommand, outcome: Outcome) -> None:
        """Record how the work of `command` ended."""
        self._running = None
        match outcome:
            case Learned():
                self._last = outcome
                self._step = outcome.token.step + 1
                self._refused.clear()
            case Saved():
                self._saved[outcome.step] = outcome
            case Refusal():
                self._refused[_name(command)] = outcome

    def _fenced(self, fence: Fence) -> Refusal | None:
        if fence.attempt != self._attempt or (self._seen is not None and fence < self._seen):
            seen = self._seen or Fence(attempt=self._attempt, planner_epoch=0)
            return Refusal(code="fenced", detail=f"this is attempt {self._attempt}", seen=seen)
        self._seen = fence
        return None

    def _answered(self, command: LearnerCommand) -> LearnerReply | None:
        name = _name(command)
        if isinstance(name, int) and name in self._saved:
            return self._saved[name]
        if self._last is not None and name == self._last.token:
            return self._last
        refusal = self._refused.get(name)
        if refusal is not None and refusal.code not in FINAL:
            del self._refused[name]
        return refusal

    def _stale(self, command: LearnerCommand) -> Refusal | None:
        match command:
            case Learn(token=token) if token.attempt != self._attempt:
                return Refusal("fenced", f"token of attempt {token.attempt}", seen=self._seen)
            case Save(step=step) if step < self._step:
                return Refusal("policy", f"the state is already that after {self._step} steps")
        return None


def _name(command: LearnerCommand) -> LearnToken | int:
    return command.token if isinstance(command, Learn) else command.step
