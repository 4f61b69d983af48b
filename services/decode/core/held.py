"""A sample that an actor holds, and what its end is told by (pure)."""

from __future__ import annotations

import msgspec

from ebbtide import journals
from ebbtide.ports import EngineFinished
from ebbtide.turns import mask_of
from ebbtide.wire import (
    Assign,
    Cut,
    Failed,
    Finished,
    JournalRef,
    KvTicket,
    Ref,
    Rollout,
    Timings,
    pack_mask,
)

_DETAIL = 500


class Limits(msgspec.Struct, frozen=True):
    """`queue`: samples held beyond the engine's slots. Times in seconds.

    A cut waits `close` for the hot store, then hands over what the journal is known to hold. A
    policy that does not load is tried `load_tries` times, with `load_pause` between the first two
    and twice as much each time: half a minute in all. `sleeps`: the engine can.
    """

    slots: int
    queue: int = 4096
    republish: float = 2.0
    orphan: float = 600.0
    close: float = 10.0
    load_tries: int = 6
    load_pause: float = 1.0
    sleeps: bool = False


class Held(msgspec.Struct):
    """A sample that has not ended. `stage`: fetching | running | cutting | storing | closing.

    `written`: tokens given to the journal; `journalled`: tokens that the hot store has;
    `since`: when it began closing; `reader`: the actor that is to go on with it, with the KV;
    `exporting`: that KV is being made ready, and then there is a `ticket`.
    """

    assign: Assign
    stage: str = "fetching"
    prompt: bytes = b""
    written: int = 0
    journalled: int = 0
    since: float = 0.0
    rollout: Rollout | None = None
    reader: str = ""
    exporting: bool = False
    ticket: KvTicket | None = None

    @property
    def closed(self) -> bool:
        """Whether all that a cut hands over lies ready."""
        return self.journalled >= self.written and not self.exporting

    @property
    def row(self) -> tuple[int, int, int, int]:
        """As a heartbeat shows it: its dispatch, and the tokens that could be resumed."""
        hand = self.assign.dispatch
        return (hand.attempt, hand.planner_epoch, hand.seq, self.journalled)

    def rolled_out(self, event: EngineFinished, actor: str) -> Rollout:
        """The finished sample, whole."""
        assign = self.assign
        return Rollout(
            key=assign.key,
            dispatch=assign.dispatch,
            prompt_id=assign.prompt_id,
            prompt_tokens=self.prompt,
            tokens=event.tokens,
            logprobs=event.logprobs,
            action_mask=pack_mask(mask_of(event.spans, len(event.tokens) // journals.TOKEN_BYTES)),
            spans=event.spans,
            finish=event.finish,
            timings=Timings(event.queued, event.prefill, event.decode),
            actor=actor,
        )

    def finished(self, rollout: Rollout, ref: Ref) -> Finished:
        """The rollout's blob is at `ref`; its policy is the one that drew the last token."""
        return Finished(
            key=rollout.key,
            dispatch=rollout.dispatch,
            actor=rollout.actor,
            policy=rollout.spans[-1].policy if rollout.spans else self.assign.policy,
            ref=ref,
            n_tokens=rollout.n_chosen,
            finish=rollout.finish,
            n_given=rollout.n_tokens - rollout.n_chosen,
        )

    def cut(self, actor: str) -> Cut:
        """It was stopped, and its journal holds what the hot store confirmed."""
        key, dispatch, n = self.assign.key, self.assign.dispatch, self.journalled
        journal = JournalRef(key, dispatch, n) if n else None
        return Cut(key, dispatch, actor, journal, n, self.ticket)

    def failed(self, actor: str, code: str, detail: str) -> Failed:
        """It cannot go on."""
        return Failed(self.assign.key, self.assign.dispatch, actor, code, detail[:_DETAIL])
