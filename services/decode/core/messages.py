"""What happens to an actor and what it does (pure)."""

from __future__ import annotations

import msgspec

from ebbtide.ports import EngineEvent, KvData, Resumed
from ebbtide.wire import (
    ActorCommand,
    Assign,
    CommandReply,
    Cut,
    Dispatch,
    Failed,
    Fence,
    Finished,
    Journal,
    JournalRef,
    KvTicket,
    PolicyRef,
    Ref,
    Rollout,
)

Terminal = Finished | Cut | Failed
"""How a dispatch ends: each has exactly one."""


class Commanded(msgspec.Struct, frozen=True):
    """A command came; the effects hold exactly one Reply."""

    command: ActorCommand


class Fetched(msgspec.Struct, frozen=True):
    """Prompt and resumed tokens of a dispatch were read, and KV of theirs if there was any."""

    dispatch: Dispatch
    prompt: bytes
    resumed: Resumed | None
    kv: KvData | None = None


class FetchFailed(msgspec.Struct, frozen=True):
    """They cannot be read. code: prompt | journal_lost."""

    dispatch: Dispatch
    code: str
    detail: str


class Happened(msgspec.Struct, frozen=True):
    """The engine reports."""

    events: tuple[EngineEvent, ...]


class Journalled(msgspec.Struct, frozen=True):
    """The hot store holds these dispatches up to so many tokens."""

    watermarks: tuple[tuple[Dispatch, int], ...]


class Stored(msgspec.Struct, frozen=True):
    """These rollouts' blobs are written."""

    rollouts: tuple[tuple[Dispatch, Ref], ...]


class Exported(msgspec.Struct, frozen=True):
    """A cut sample's KV is held for its reader by this ticket, or is not."""

    dispatch: Dispatch
    ticket: KvTicket | None


class StillOpen(msgspec.Struct, frozen=True):
    """Of our exports these may still be read, by the opaque part of their tickets."""

    exports: frozenset[bytes]


class PolicyLoaded(msgspec.Struct, frozen=True):
    """The engine holds the policy, verified and probed."""

    policy: PolicyRef


class LoadFailed(msgspec.Struct, frozen=True):
    """It does not; the engine serves nothing. `lasting`: by what `why` says, it never will."""

    policy: PolicyRef
    why: str
    lasting: bool = False


class Slept(msgspec.Struct, frozen=True):
    """The engine keeps neither weights nor KV, or could not give them up: `why`."""

    why: str = ""


class PlannerSeen(msgspec.Struct, frozen=True):
    """A planner of this fence lives."""

    fence: Fence


class Leave(msgspec.Struct, frozen=True):
    """Notice: hand everything over and go."""


class Tick(msgspec.Struct, frozen=True):
    """Time went by."""


Event = (
    Commanded
    | Fetched
    | FetchFailed
    | Happened
    | Journalled
    | Stored
    | Exported
    | StillOpen
    | PolicyLoaded
    | LoadFailed
    | Slept
    | PlannerSeen
    | Leave
    | Tick
)


class Reply(msgspec.Struct, frozen=True):
    """The answer to the command."""

    reply: CommandReply


class Fetch(msgspec.Struct, frozen=True):
    """Read the prompt, and what is to be resumed."""

    assign: Assign


class Admit(msgspec.Struct, frozen=True):
    """Give the sample to the engine."""

    assign: Assign
    prompt: bytes
    resumed: Resumed | None
    kv: KvData | None = None


class CutEngine(msgspec.Struct, frozen=True):
    """Have the engine stop the dispatch; with `export` its KV is to come along."""

    dispatch: Dispatch
    export: bool = False


class Export(msgspec.Struct, frozen=True):
    """Hold this KV for `reader`; answered by Exported."""

    dispatch: Dispatch
    kv: KvData
    reader: str


class Release(msgspec.Struct, frozen=True):
    """Nobody will read this export: make room."""

    ticket: KvTicket


class Write(msgspec.Struct, frozen=True):
    """Append to the journal; answered by Journalled once the hot store has it."""

    ref: JournalRef
    chunk: Journal


class Store(msgspec.Struct, frozen=True):
    """Write the rollout's blob; answered by Stored."""

    rollout: Rollout


class Publish(msgspec.Struct, frozen=True):
    """Publish the facts: once as they come (`again` is False), then until they are settled.

    `to`: the newest planner known. What an earlier one acknowledged and did not answer for must
    reach it, so the broker is not to take it for a repetition.
    """

    facts: tuple[Terminal, ...]
    to: Fence | None
    again: bool = False


class Load(msgspec.Struct, frozen=True):
    """Load the policy; the engine is idle."""

    policy: PolicyRef
    index: Ref


class SleepEngine(msgspec.Struct, frozen=True):
    """Have the engine give up weights and KV; it is idle. Answered by Slept."""


class Settled(msgspec.Struct, frozen=True):
    """The planner answered for this fact. verdict: accepted | void."""

    fact: Terminal
    verdict: str


class Gone(msgspec.Struct, frozen=True):
    """Nothing is held any more: end the process. `orphaned`: no planner was heard for long.

    `unable`: the last of too many failures to load the policy that is wanted.
    """

    orphaned: bool
    unable: LoadFailed | None = None


Effect = (
    Reply
    | Fetch
    | Admit
    | CutEngine
    | Export
    | Release
    | Write
    | Store
    | Publish
    | Load
    | SleepEngine
    | Settled
    | Gone
)
