"""What happens to the prefill service and what it does (pure).

A request goes by the number that the shell gave it. Each Asked is followed by exactly one Answer
of its number, sooner or later.
"""

from __future__ import annotations

import msgspec

from ebbtide.wire import (
    CommandReply,
    Fence,
    KvKey,
    KvTicket,
    PolicyRef,
    PrefillCommand,
    Ref,
    TicketReply,
    TicketRequest,
)


class Commanded(msgspec.Struct, frozen=True):
    """A command came; the effects hold exactly one Reply."""

    command: PrefillCommand


class Asked(msgspec.Struct, frozen=True):
    """An actor asks for a ticket."""

    number: int
    ask: TicketRequest


class Computed(msgspec.Struct, frozen=True):
    """The KV of `key` is there, `size` bytes of it."""

    key: KvKey
    size: int


class ComputeFailed(msgspec.Struct, frozen=True):
    """It cannot be had."""

    key: KvKey
    why: str


class Exported(msgspec.Struct, frozen=True):
    """KV is held for whoever made request `number`, or is not."""

    number: int
    ticket: KvTicket | None


class StillOpen(msgspec.Struct, frozen=True):
    """So many of our exports may still be read."""

    exports: int


class PolicyLoaded(msgspec.Struct, frozen=True):
    """The engine holds the policy, verified and probed; `layout` of its KV."""

    policy: PolicyRef
    layout: str


class LoadFailed(msgspec.Struct, frozen=True):
    """It does not; the engine serves nothing. `lasting`: by what `why` says, it never will."""

    policy: PolicyRef
    why: str
    lasting: bool = False


class PlannerSeen(msgspec.Struct, frozen=True):
    """A planner of this fence lives."""

    fence: Fence


class Leave(msgspec.Struct, frozen=True):
    """Notice: answer what was asked, and go."""


class Tick(msgspec.Struct, frozen=True):
    """Time went by."""


Event = (
    Commanded
    | Asked
    | Computed
    | ComputeFailed
    | Exported
    | StillOpen
    | PolicyLoaded
    | LoadFailed
    | PlannerSeen
    | Leave
    | Tick
)


class Reply(msgspec.Struct, frozen=True):
    """The answer to the command."""

    reply: CommandReply


class Answer(msgspec.Struct, frozen=True):
    """The answer to a request."""

    number: int
    reply: TicketReply


class Compute(msgspec.Struct, frozen=True):
    """Prefill it and keep the KV; answered by Computed or ComputeFailed.

    `attempt`, `step`: of the sample that asked first.
    """

    policy: PolicyRef
    key: KvKey
    prompt: bytes
    attempt: int = 0
    step: int = 0


class Export(msgspec.Struct, frozen=True):
    """Hold the KV of `key`, which is kept, for `reader`; answered by Exported."""

    number: int
    key: KvKey
    reader: str


class Release(msgspec.Struct, frozen=True):
    """Nobody knows of this export: make room."""

    ticket: KvTicket


class Drop(msgspec.Struct, frozen=True):
    """Keep the KV of `key` no longer."""

    key: KvKey


class Load(msgspec.Struct, frozen=True):
    """Load the policy; nothing is being computed."""

    policy: PolicyRef
    index: Ref


class Gone(msgspec.Struct, frozen=True):
    """Nothing is owed any more: end the process. `orphaned`: no planner was heard for long.

    `unable`: the last of too many failures to load the policy that is wanted.
    """

    orphaned: bool
    unable: LoadFailed | None = None


Effect = Reply | Answer | Compute | Export | Release | Drop | Load | Gone
