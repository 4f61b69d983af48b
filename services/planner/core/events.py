"""What happens to the planner: everything that the core is told (pure)."""

from __future__ import annotations

import msgspec

from ebbtide.wire import Beat, CommandReply, Fact, LearnerReply, Ref

OUTLIVING = ("decode", "prefill", "reward")
"""Roles whose pods outlive planners and attempts."""


class Prompt(msgspec.Struct, frozen=True):
    """What the planner needs of one prompt; the tokens stay where they are."""

    prompt_id: str
    n_tokens: int
    task: str = ""


class Facts(msgspec.Struct, frozen=True):
    """Facts of one fetch, each with the token by which it is acknowledged."""

    arrived: tuple[tuple[int, Fact], ...]


class Heard(msgspec.Struct, frozen=True):
    """A heartbeat of any role."""

    beat: Beat


class Replied(msgspec.Struct, frozen=True):
    """The answer to command `call`; None when none came in time."""

    call: int
    reply: CommandReply | LearnerReply | None


class PromptsLoaded(msgspec.Struct, frozen=True):
    """The prompts that were asked for by LoadPrompts, in its order."""

    step: int
    train: tuple[Prompt, ...]
    eval: tuple[Prompt, ...]
    turn: int = 0


class PromptsLost(msgspec.Struct, frozen=True):
    """They are not there any more, or are not what they were: asking again changes nothing."""

    why: str


class ManifestCommitted(msgspec.Struct, frozen=True):
    """The manifest of the checkpoint after `step` updates lies at `ref`."""

    step: int
    ref: Ref


class PodsGone(msgspec.Struct, frozen=True):
    """The operator says that these pods have ended: nothing of theirs runs any more."""

    names: tuple[str, ...]


class PodStarted(msgspec.Struct, frozen=True):
    """This planner's own pod, a rank of this attempt's learner, or one that outlives both runs.

    `pod`: its name, or the rank; `since` is on the planner's clock; `labels`: where it stands.
    """

    role: str
    pod: str
    since: float
    labels: tuple[tuple[str, str], ...] = ()


class Suspend(msgspec.Struct, frozen=True):
    """The user wants every pod freed: save if the job says so, and start nothing new."""


class Tick(msgspec.Struct, frozen=True):
    """Time went by. `connected`: whether the broker can be reached now."""

    connected: bool = True


Event = (
    Facts
    | Heard
    | Replied
    | PromptsLoaded
    | PromptsLost
    | ManifestCommitted
    | PodsGone
    | PodStarted
    | Suspend
    | Tick
)
