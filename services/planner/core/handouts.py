"""Hands samples to actors and learns from heartbeats and replies what became of them (pure)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from ebbtide.randomness import noise_key
from ebbtide.wire import (
    Assign,
    CommandReply,
    CutSamples,
    Dispatch,
    Dispatched,
    Heartbeat,
    LoadPolicy,
    Ok,
    PolicyRef,
    Ref,
    Refusal,
    Sampling,
    Submit,
)
from services.planner.core.config import JobConfig
from services.planner.core.crew import CONFIRMED, UNANSWERED, Actor, Crew, Run, Sighting
from services.planner.core.dealing import Share
from services.planner.core.parcels import parcels
from services.planner.core.pen import Pen
from services.planner.core.prefills import Prefills
from services.planner.core.samples import ABANDONED, OUT, WAITING, OpenStep, code_of
from services.planner.core.settling import Settling
from services.planner.core.tickets import Tickets
from services.planner.core.waiting import Waiting
from services.planner.core.workload import Workload

_CUTS_AT_ONCE = 1024
_LOOK_SECONDS = 0.25
"""An actor with room looks so often whether waiting samples would end sooner with it."""


class Handouts:
    """`slots`: of an actor that has not said; `stop_ids`: what ends an answer.

    The planner decides how much an actor has: its slots, and a quarter more.
    """

    def __init__(
        self, *, pen: Pen, config: JobConfig, slots: int, stop_ids: tuple[int, ...]
    ) -> None:
        self._pen = pen
        self._patience = config.patience
        self._seed, self._slots, self._stop_ids = config.seed, slots, stop_ids
        self._calls: dict[int, tuple[str, str, list[int]]] = {}
        self._seq = 0
        self._policy: tuple[PolicyRef, Ref] | None = None
        self._waiting = Waiting(same=lambda _a, _b: False)
        self._workload: Workload | None = None
        self.prefills = Prefills(pen=pen, patience=config.patience)
        self.crew = Crew(lease=config.patience.lease)
        self.tickets = Tickets()
        self.settling = Settling(
            pen=pen, gather=config.patience.settle, timeout=config.patience.submit
        )

    # --- steps ----------------------------------------------------------------------------------

    def want(self, policy: PolicyRef, index: Ref) -> None:
        """From now on actors should hold `policy`; they are told at once."""
        self._policy = (policy, index)
        self.prefills.want(policy, index)
        for actor in self.crew:
            self.load(actor)

    def deal(
        self,
        step: OpenStep,
        seated: Mapping[str, Share],
        kept: Sequence[Share],
        *,
        expected: Sequence[float],
        keep_seconds: float,
    ) -> None:
        """Each actor of `seated` gets its share; the others are kept for newcomers, for a while."""
        self.tickets.clear()
        self._workload = Workload(step, expected)
        self._waiting = Waiting(same=lambda a, b: step.group_of[a] == step.group_of[b])
        self._waiting.deal(seated, kept, self._pen.now + keep_seconds)

    def idle(self) -> list[str]:
        """Actors that have nothing and for which nothing waits, by name."""
        return [
            actor.name
            for actor in self.crew.working()
            if not (actor.busy or self._waiting.queued(actor.name))
        ]

    @property
    def kept(self) -> bool:
        """Whether shares wait for actors still to come."""
        return self._waiting.kept

    def adopt(self, step: OpenStep) -> None:
        """After a planner's restart: what the ledger says is out gets a lease to be shown."""
        for sample in step.where(OUT):
            self.crew.expect(step.actors[sample], step.codes[sample], self._pen.reachable)

    def fill(self, step: OpenStep) -> int:
        """Give each serving actor what it has room for; returns how many samples went out."""
        if not step.states.count(WAITING):
            return 0
        before = self._seq
        ready = [actor for actor in self.crew if actor.takes(step.plan.policy, self._pen.now)]
        if ready and self.prefills.is_near():
            return 0
        for serve in (self._fill_one, self._help):
            for actor in ready:
                serve(step, actor)
        return self._seq - before

    def hand(self, step: OpenStep, sample: int, name: str) -> bool:
        """Give a waiting sample to this actor, before all that waits; whether it has a place."""
        policy, actor = step.plan.policy, self.crew.get(name)
        if actor is None or self._policy is None or self._policy[0] != policy:
            return False
        if not actor.takes(policy, self._pen.now) or self._places(actor) <= 0:
            return False
        self._waiting.drop(sample)
        self._submit(actor, [self._dispatch(step, actor, sample)])
        return True

    def queued(self, step: OpenStep, name: str) -> bool:
        """Whether samples wait for this actor."""
        return any(step.states[sample] == WAITING for sample in self._waiting.queued(name))

    def _help(self, step: OpenStep, actor: Actor) -> None:
        """One with room takes over what would end sooner with it: now and then it looks."""
        late = self._pen.now - actor.looked_at >= _LOOK_SECONDS
        if not late or self._waiting.queued(actor.name) or self._room(actor) <= 0:
            return
        actor.looked_at = self._pen.now
        sooner = partial(self._sooner, step, actor)
        if self._waiting.find_more(actor.name, self._pen.now, sooner):
            self._fill_one(step, actor)

    def _sooner(self, step: OpenStep, actor: Actor, other: str, moved: Sequence[int]) -> bool:
        """Whether `moved` end sooner with `actor`; one that cannot take them yet has a while."""
        owner = self.crew.get(other)
        if owner is None or not owner.serves(step.plan.policy) or self._workload is None:
            return self._pen.now >= self._waiting.kept_until
        theirs = [*step.held(owner.out), *self._waiting.queued(other)]
        slots = actor.slots or self._slots
        return self._workload.sooner(step.held(actor.out), theirs, moved, slots)

    def _fill_one(self, step: OpenStep, actor: Actor) -> None:
        room = self._room(actor)
        picked = self._waiting.take(actor.name, room, lambda sample: step.states[sample] == WAITING)
        self._submit(actor, [self._dispatch(step, actor, sample) for sample in picked])

    def _room(self, actor: Actor) -> int:
        """Free places; few of them behind full slots are left to gather."""
        room = self._places(actor)
        return room if room > max(1, (actor.slots or self._slots) // 4) // 2 else 0

    def _places(self, actor: Actor) -> int:
        """Its slots and a quarter more, less what it has and what is kept for samples to come."""
        slots = actor.slots or self._slots
        return slots + max(1, slots // 4) - len(actor.out) - len(actor.reserved)

    def _dispatch(self, step: OpenStep, actor: Actor, sample: int) -> Assign:
        old, holder = step.hands[sample], step.actors[sample]
        step.counts["restarted"] += step.begins_again(sample, self._pen.fence)
        if old is not None and self.crew.get(holder) and not step.goes_on_from(code_of(old)):
            self.settling.void(holder, old)
        dispatch = Dispatch(self._pen.fence.attempt, self._pen.fence.planner_epoch, self._seq)
        self._seq += 1
        self._pen.write(Dispatched(step.key(sample), dispatch, actor.name, step.plan.policy))
        actor.out[code_of(dispatch)] = UNANSWERED
        step.counts["resumed"] += step.journals[sample] is not None
        return self._assign(step, sample)

    def _assign(self, step: OpenStep, sample: int) -> Assign:
        group, key, dispatch = step.group(sample), step.key(sample), step.hands[sample]
        assert dispatch is not None
        policy = step.plan.policy
        return Assign(
            key=key,
            dispatch=dispatch,
            policy=policy,
            prompt_id=group.prompt_id,
            prompt_ref=group.prompt_ref,
            sampling=Sampling(group.temperature, self._stop_ids),
            noise_key=noise_key(self._seed, key),
            max_new_tokens=group.max_new_tokens,
            resume=step.journal(sample),
            given=step.given_ref(sample),
            kv=self.prefills.kv(policy, group.prompt_tokens),
            ticket=self.tickets.of(sample, step.actors[sample], policy, self._pen.now),
        )

    def _submit(self, actor: Actor, assigns: Sequence[Assign]) -> None:
        for parcel in parcels(assigns):
            codes = [code_of(assign.dispatch) for assign in parcel]
            submit = Submit(self._pen.fence, parcel)
            call = self._pen.send(actor.name, submit, self._patience.submit)
            actor.in_flight.update(codes)
            self._calls[call] = (actor.name, actor.incarnation, codes)

    def cut(self, name: str, dispatches: Sequence[Dispatch], *, reader: str = "") -> None:
        """Stop these; what a `reader` is to go on with comes with a ticket, if there is KV."""
        for start in range(0, len(dispatches), _CUTS_AT_ONCE):
            chunk = tuple(dispatches[start : start + _CUTS_AT_ONCE])
            order = CutSamples(self._pen.fence, chunk, reader)
            self._pen.tell(name, order, self._patience.submit)

    # --- heartbeats -------------------------------------------------------------------------------

    def hear(self, beat: Heartbeat) -> Sighting | None:
        """Take in an actor's heartbeat; None if it was old."""
        sighting = self.crew.hear(beat, self._pen.reachable)
        if sighting is None:
            return None
        step = self._pen.book.open
        self._check_running(step, sighting)
        self._check_outbox(step, sighting)
        self._give_up(step, sighting.actor, sighting.lost)
        if sighting.actor.works:
            self._waiting.join(beat.actor)
        else:
            self.put_back(self._waiting.leave(beat.actor))
        self.load(sighting.actor)
        return sighting

    def _check_running(self, step: OpenStep | None, sighting: Sighting) -> None:
        strangers = [r.dispatch for r in sighting.running if not self._is_ours(step, sighting, r)]
        self.cut(sighting.actor.name, strangers)

    def _is_ours(self, step: OpenStep | None, sighting: Sighting, run: Run) -> bool:
        """Whether the running hand-out is wanted; notes its progress."""
        sample = step.holder(run.code) if step else None
        if step is None or sample is None or step.states[sample] not in (WAITING, OUT):
            return False
        self._found(step, sample, sighting.actor, run.code)
        if step.progressed(sample, run.dispatch, run.tokens):
            self._pen.progress_at = self._pen.now
        return True

    def _found(self, step: OpenStep, sample: int, actor: Actor, code: int) -> None:
        """A hand-out that was given up is there after all, unless it has ended since."""
        if step.states[sample] == WAITING and code not in step.ended:
            step.found(sample, actor.name)
            actor.out[code] = CONFIRMED

    def _check_outbox(self, step: OpenStep | None, sighting: Sighting) -> None:
        actor = sighting.actor
        for code, dispatch in sighting.outbox:
            if not self.settle(step, actor.name, dispatch) and step is not None:
                sample = step.holder(code)
                if sample is not None:
                    self._found(step, sample, actor, code)

    def settle(self, step: OpenStep | None, actor: str, dispatch: Dispatch) -> bool:
        """Tell `actor` what its dispatch came to; False if that is still open.

        It stays open while another actor is to go on from its journal, which a settled one drops.

        Without an open step all is settled at once, also where a new attempt will open the same
        step again. What the ledger has is accepted: the rollout may be adopted, and the actor's
        copy is not needed for that. All else is void, even if it could be finished: of an earlier
        attempt only accepted rollouts may serve (protocol.md 9), since a hand-out of it is never
        current in this one (3), and a draining actor must not wait for a learner to restore. The
        torch engine draws the same tokens again, for noise is the sample's own (10).
        """
        code = code_of(dispatch)
        sample = step.holder(code) if step else None
        if step is None or sample is None:
            if step is not None and step.goes_on_from(code):
                return False
            taken = self._pen.book.has_accepted(code)
        elif step.rollouts[sample] is not None:
            taken = True
        elif step.states[sample] == ABANDONED:
            taken = False
        else:
            return False
        (self.settling.accepted if taken else self.settling.void)(actor, dispatch)
        return True

    # --- ends of hand-outs --------------------------------------------------------------------------

    def ended(self, actor: str, code: int) -> None:
        """The hand-out came to an end; its place is free."""
        if found := self.crew.get(actor):
            found.forget([code])

    def wait_again(self, step: OpenStep, samples: Sequence[int]) -> None:
        """These hand-outs brought nothing: their samples wait again."""
        for sample in samples:
            self.ended(step.actors[sample], step.codes[sample])
            step.lost(sample)
        self.put_back(samples)

    def lapse(self) -> list[Actor]:
        """Take back what actors had that were not heard for a lease; returns them."""
        gone = self.crew.lapsed(self._pen.reachable)
        for actor in gone:
            self._bereave(actor)
        return gone

    def gone(self, name: str) -> Actor | None:
        """The pod has ended, so its lease ends at once."""
        if actor := self.crew.gone(name):
            self._bereave(actor)
        return actor

    def _bereave(self, actor: Actor) -> None:
        self.put_back(self._waiting.leave(actor.name))
        self._give_up(self._pen.book.open, actor, list(actor.out))

    def _give_up(self, step: OpenStep | None, actor: Actor, codes: Sequence[int]) -> None:
        holders = step.held(codes) if step else []
        actor.forget(codes)
        if step is not None:
            self.wait_again(step, [i for i in holders if step.states[i] == OUT])

    def put_back(self, samples: Sequence[int], *, of: str = "") -> None:
        """These wait before what was dealt: for actor `of`, if it works, else for anybody."""
        heirs = self.crew.heirs(of, lambda name: len(self._waiting.queued(name)))
        self._waiting.put_back(samples, heirs)

    # --- replies ----------------------------------------------------------------------------------

    def replied(self, call: int, reply: CommandReply | None) -> None:
        """The answer to a Submit or LoadPolicy; None when there was none."""
        name, incarnation, codes = self._calls.pop(call, ("", "", []))
        actor = self.crew.get(name)
        if actor is None or actor.incarnation != incarnation:
            return
        if actor.loading == call:
            self._load_answered(actor, reply)
        else:
            self._submit_answered(actor, codes, reply)

    def _submit_answered(self, actor: Actor, codes: list[int], reply: CommandReply | None) -> None:
        actor.in_flight.difference_update(codes)
        match reply:
            case Ok(as_of=as_of):
                actor.failures = 0
                known = (code for code in codes if actor.out.get(code) == UNANSWERED)
                actor.out.update(dict.fromkeys(known, as_of))
            case Refusal():
                self._refused(actor, codes, reply)
            case None:
                self._pause(actor)

    def _refused(self, actor: Actor, codes: list[int], refusal: Refusal) -> None:
        """Samples that were refused wait again; an actor at fault gets none for a moment."""
        named = {code_of(dispatch) for dispatch in refusal.dispatches}
        refused = [c for c in codes if (not named or c in named) and c in actor.out]
        if refusal.code == "policy":
            actor.policy = None
        if refusal.code == "draining":
            actor.state = "draining"
            self.put_back(self._waiting.leave(actor.name))
        self._pause(actor)
        actor.pause_until = actor.resubmit_at
        self._give_up(self._pen.book.open, actor, refused)

    def resubmit(self, step: OpenStep) -> None:
        """Send again all that was submitted without an answer."""
        for actor in self.crew:
            if not 0.0 < actor.resubmit_at <= self._pen.now:
                continue
            actor.resubmit_at = 0.0
            samples = step.held(actor.unanswered())
            self._submit(actor, [self._assign(step, sample) for sample in samples])

    def load(self, actor: Actor) -> None:
        """Have `actor` load the wanted policy, unless it holds it or is about to."""
        ready = actor.loads and self._pen.now >= actor.pause_until
        under_way = actor.loading or actor.number < actor.loaded_at
        if self._policy is None or actor.policy == self._policy[0] or not ready or under_way:
            return
        command = LoadPolicy(self._pen.fence, *self._policy)
        actor.loading = self._pen.send(actor.name, command, self._patience.load)
        self._calls[actor.loading] = (actor.name, actor.incarnation, [])

    def _load_answered(self, actor: Actor, reply: CommandReply | None) -> None:
        actor.loading = 0
        if isinstance(reply, Ok):
            actor.failures, actor.loaded_at = 0, reply.as_of
        else:
            self._pause(actor)
            actor.pause_until = actor.resubmit_at

    def _pause(self, actor: Actor) -> None:
        pause = self._patience.retry * 2.0 ** min(actor.failures, 8)
        actor.failures += 1
        actor.resubmit_at = self._pen.now + min(pause, self._patience.poll)
