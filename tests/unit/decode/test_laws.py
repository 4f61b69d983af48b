"""The actor's laws under any order, loss and repetition of what it is told.

The laws themselves are asserted by `tests.unit.decode.world.World` after each event.
"""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from ebbtide.wire import (
    ActorCommand,
    CutSamples,
    Dispatch,
    Drain,
    Fence,
    LoadPolicy,
    Ok,
    PolicyRef,
    Refusal,
    Settle,
    Sleep,
    Submit,
)
from services.decode.core.messages import (
    Commanded,
    Fetched,
    FetchFailed,
    Leave,
    PlannerSeen,
    Reply,
    Tick,
)
from tests.unit.decode.rigs import INDEX, OTHER, POLICY, READER, assign, hand, resumed
from tests.unit.decode.world import World

Hands = tuple[Dispatch, ...]
HIGHEST = Fence(9, 9)

hands = st.builds(hand, st.integers(0, 3))
some = st.lists(hands, min_size=1, max_size=4).map(tuple)
policies = st.sampled_from([POLICY] * 3 + [OTHER])
fences = st.builds(Fence, st.just(1), st.sampled_from([2, 2, 3, 1]))
picks = st.integers(0, 1000)


class AnyOrder(RuleBasedStateMachine):
    """A planner, an engine and stores that keep no order among each other."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.highest = Fence(1, 1)
        self.load_in_time(POLICY)
        self.world.loaded(well=True)
        self.submit_what_fits((hand(0), hand(1)))
        self.fetch(0, 0, well=True)

    # --- commands ---------------------------------------------------------------------------------

    def command(self, command: ActorCommand) -> None:
        world, before = self.world, self.world.rig.beat()
        did = world.rig.tell(Commanded(command))
        [reply] = [effect.reply for effect in did if isinstance(effect, Reply)]
        assert (command.fence < self.highest) == _is(reply, "fenced")
        self.highest = max(self.highest, command.fence)
        if _is(reply, "fenced"):
            after = world.rig.beat()
            assert len(did) == 1
            assert (after.running, after.outbox) == (before.running, before.outbox)
            assert (after.fence, after.state) == (before.fence, before.state)
        elif isinstance(reply, Ok):
            assert reply.as_of == before.number + 1
            if isinstance(command, Submit):
                world.taken.update((a.dispatch, a.key) for a in command.assigns)
        world.perform(did)

    @rule(dispatches=some, policy=policies, fence=fences)
    def submit(self, dispatches: Hands, policy: PolicyRef, fence: Fence) -> None:
        assigns = tuple(assign(dispatch, policy=policy) for dispatch in dispatches)
        self.command(Submit(fence, assigns))

    @rule(dispatches=some)
    def submit_what_fits(self, dispatches: Hands) -> None:
        policy = self.world.rig.actor.policy or POLICY
        assigns = tuple(assign(dispatch, policy=policy) for dispatch in dispatches)
        self.command(Submit(self.highest, assigns))

    @rule(pick=picks)
    def submit_again(self, pick: int) -> None:
        if self.world.settled:
            dispatch = _any(self.world.settled, pick)
            policy = self.world.rig.actor.policy or POLICY
            self.command(Submit(self.highest, (assign(dispatch, policy=policy),)))

    @rule(pick=picks, reader=st.sampled_from(["", READER]))
    def cut_what_runs(self, pick: int, reader: str) -> None:
        if self.world.decoding:
            self.command(CutSamples(self.highest, (_any(self.world.decoding, pick),), reader))

    @rule(pick=picks)
    def settle_what_ended(self, pick: int) -> None:
        outbox = self.world.rig.beat().outbox
        if outbox:
            self.command(Settle(self.highest, (outbox[pick % len(outbox)],)))

    @rule(dispatches=some, fence=fences)
    def cut(self, dispatches: Hands, fence: Fence) -> None:
        self.command(CutSamples(fence, dispatches))

    @rule(accepted=some, void=some, fence=fences)
    def settle(self, accepted: Hands, void: Hands, fence: Fence) -> None:
        self.command(Settle(fence, accepted, void))

    @rule(policy=policies, fence=fences)
    def load(self, policy: PolicyRef, fence: Fence) -> None:
        self.command(LoadPolicy(fence, policy, INDEX))

    @rule(policy=st.sampled_from([POLICY] * 4 + [OTHER]))
    def load_in_time(self, policy: PolicyRef) -> None:
        self.command(LoadPolicy(self.highest, policy, INDEX))

    @rule(fence=fences)
    def sleep(self, fence: Fence) -> None:
        self.command(Sleep(fence))

    @rule()
    def sleep_in_time(self) -> None:
        self.command(Sleep(self.highest))

    @precondition(lambda self: self.world.decoding)
    @rule()
    def sleep_after_a_move(self) -> None:
        """All that runs goes to a reader, who may not have read it yet."""
        self.command(CutSamples(self.highest, tuple(self.world.decoding), READER))
        while self.step_on():
            pass
        self.sleep_in_time()

    @precondition(lambda self: self.world.falling)
    @rule(well=st.sampled_from([True, True, False]))
    def slept(self, *, well: bool) -> None:
        self.world.slept(well=well)

    @rule(how=st.sampled_from(["not yet"] * 3 + ["command", "notice"]))
    def drain(self, how: str) -> None:
        if how == "command":
            self.command(Drain(self.highest))
        elif how == "notice":
            self.world.tell(Leave())

    @rule(fence=fences)
    def planner_lives(self, fence: Fence) -> None:
        self.highest = max(self.highest, fence)
        self.world.tell(PlannerSeen(fence))

    # --- engine, stores, time ---------------------------------------------------------------------

    @rule(times=st.integers(1, 6))
    def go_on(self, times: int) -> None:
        for _ in range(times):
            self.step_on()

    @precondition(lambda self: self.world.fetches)
    @rule(pick=picks, well=st.sampled_from([True, True, True, False]), n=st.sampled_from([0, 3]))
    def fetch(self, pick: int, n: int, *, well: bool) -> None:
        dispatch = self.world.fetches.pop(pick % len(self.world.fetches)).assign.dispatch
        read = Fetched(dispatch, b"prompt", resumed(n) if n else None)
        self.world.tell(read if well else FetchFailed(dispatch, "journal_lost", ""))

    @precondition(lambda self: self.world.decoding)
    @rule(pick=picks)
    def draw(self, pick: int) -> None:
        self.world.draw(_any(self.world.decoding, pick))

    @precondition(lambda self: self.world.decoding)
    @rule(pick=picks)
    def finish(self, pick: int) -> None:
        self.world.end(_any(self.world.decoding, pick), "finished")

    @precondition(lambda self: self.world.cutting)
    @rule(pick=picks)
    def obey_a_cut(self, pick: int) -> None:
        self.world.end(_any(self.world.cutting, pick), "cut")

    @precondition(lambda self: self.world.decoding)
    @rule(pick=picks)
    def break_down(self, pick: int) -> None:
        self.world.fail(_any(self.world.decoding, pick))

    @precondition(lambda self: self.world.writes)
    @rule(count=st.integers(1, 4))
    def journal(self, count: int) -> None:
        self.world.acknowledge(count)

    @precondition(lambda self: self.world.exports)
    @rule(well=st.sampled_from([True, True, False]))
    def export(self, *, well: bool) -> None:
        self.world.export(well=well)

    @precondition(lambda self: self.world.readable)
    @rule(pick=picks)
    def read(self, pick: int) -> None:
        self.world.read(self.world.readable[pick % len(self.world.readable)])

    @precondition(lambda self: self.world.stores)
    @rule()
    def store(self) -> None:
        self.world.store()

    @precondition(lambda self: self.world.loads)
    @rule(well=st.sampled_from([True, True, False]))
    def loaded(self, *, well: bool) -> None:
        self.world.loaded(well=well)

    @rule(seconds=st.sampled_from([0.1, 0.1, 2.0, 2.0, 11.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.world.rig.now += seconds
        self.world.tell(Tick())

    @precondition(lambda self: self.world.heard)
    @rule(pick=picks)
    def hear_again(self, pick: int) -> None:
        """The latest before the earliest."""
        self.world.tell(self.world.heard[-1 - pick % len(self.world.heard)])

    # --- in the end -------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Everything that is under way comes to its end."""
        world = self.world
        while self.step_on():
            pass
        world.rig.now += 11.0
        world.tell(Tick())
        assert world.facts.keys() == world.taken.keys(), "a hand-out without an end"
        self.command(Settle(HIGHEST, tuple(world.taken)))
        assert world.rig.beat().outbox == ()
        self.command(Drain(HIGHEST))
        assert bool(world.gone) or world.rig.beat().holding
        for opaque in sorted(world.open):
            world.read(opaque)
        assert len(world.gone) == 1

    def step_on(self) -> bool:
        world = self.world
        if world.fetches:
            self.fetch(0, 0, well=True)
        elif world.cutting:
            self.obey_a_cut(0)
        elif world.decoding:
            self.finish(0)
        elif world.exports:
            world.export(well=True)
        elif world.writes:
            world.acknowledge(1)
        elif world.stores:
            world.store()
        elif world.falling:
            world.slept(well=True)
        elif world.loads:
            world.loaded(well=True)
        else:
            return False
        return True


def _is(reply: Ok | Refusal, code: str) -> bool:
    return isinstance(reply, Refusal) and reply.code == code


def _any(choices: Mapping[Dispatch, object], pick: int) -> Dispatch:
    return list(choices)[pick % len(choices)]


AnyOrder.TestCase.settings = settings(
    max_examples=40, stateful_step_count=50, deadline=None, print_blob=True
)
TestAnyOrder = AnyOrder.TestCase
