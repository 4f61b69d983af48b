"""What the planner does: everything that the core asks of its shell (pure).

The one rule: effects take place in order. An effect becomes visible only after every Append,
WriteBlob and CommitManifest before it is durable; so a fact is acknowledged, an actor settled
and a score asked for only once the ledger holds the reason. The shell may write many Appends as
one segment, and it may lose any effect but these three, at a crash or on the network: the core
asks again.
"""

from __future__ import annotations

import msgspec

from ebbtide.reports import StepReport
from ebbtide.wire import (
    ActorCommand,
    LearnerCommand,
    PromptRef,
    Record,
    ScoreRequest,
)

LEARNER = ""
"""The address of the learner gang; any without a prefix is an actor's name."""
PREFILL = "prefill/"
"""Begins the address of a pod of the prefill service; its name follows."""


class Append(msgspec.Struct, frozen=True):
    """Write to the ledger."""

    record: Record


class Acknowledge(msgspec.Struct, frozen=True):
    """These facts need not come again."""

    tokens: tuple[int, ...]


class Send(msgspec.Struct, frozen=True):
    """Ask an actor (or the LEARNER); answered by Replied(call) within `timeout` seconds.

    `call` 0: the answer matters only if it is a refusal.
    """

    call: int
    to: str
    command: ActorCommand | LearnerCommand
    timeout: float


class AskScores(msgspec.Struct, frozen=True):
    """Queue these for the scorers; `ask` counts the askings, so that a repeat is not absorbed."""

    requests: tuple[ScoreRequest, ...]
    ask: int


class WriteBlob(msgspec.Struct, frozen=True):
    """Write a blob whose content is a function of the ledger before it."""

    path: str
    data: bytes


class CommitManifest(msgspec.Struct, frozen=True):
    """Make a checkpoint real by one conditional write; answered by ManifestCommitted."""

    step: int
    path: str
    data: bytes


class Forget(msgspec.Struct, frozen=True):
    """Delete blobs of checkpoints that are no longer kept."""

    paths: tuple[str, ...]


class LoadPrompts(msgspec.Struct, frozen=True):
    """Read prompts of `step`; answered by PromptsLoaded, or by PromptsLost.

    `turn`: 0 for those that it opens with, else of which refill.
    """

    step: int
    train: tuple[PromptRef, ...]
    eval: tuple[PromptRef, ...]
    turn: int = 0


class ScalePool(msgspec.Struct, frozen=True):
    """Wanted actors, and names of those that are to go first."""

    replicas: int
    release: tuple[str, ...]


class Report(msgspec.Struct, frozen=True):
    """Write a step's report, for people. `opened`: when the step was, on the planner's clock."""

    report: StepReport
    opened: float


class Note(msgspec.Struct, frozen=True):
    """Log a line: `event` is a verb phrase."""

    event: str
    fields: dict[str, str | int | float]


class Finish(msgspec.Struct, frozen=True):
    """The job ended. outcome: complete | failed; `reason` is one word of a closed list."""

    outcome: str
    reason: str
    message: str


Effect = (
    Append
    | Acknowledge
    | Send
    | AskScores
    | WriteBlob
    | CommitManifest
    | Forget
    | LoadPrompts
    | ScalePool
    | Report
    | Note
    | Finish
)
