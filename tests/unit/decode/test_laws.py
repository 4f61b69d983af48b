"""Laws of an actor under any order of commands, answers, draws and repetitions."""

from __future__ import annotations

from collections import Counter
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.wire import (
    Cut,
    CutSamples,
    Dispatch,
    Failed,
    Fence,
    Finished,
    LoadPolicy,
    Ok,
    Settle,
    Submit,
)
from services.decode.core.messages import Leave, Publish, Terminal, Tick
from tests.unit.decode.actors import BLOB, NEW, OLD, Bench, World, assign

SAMPLES = 8
FENCE = Fence(1, 3)


class _Planner:
    """Says anything a planner could say, often more than once."""

    def __init__(self, world: World, rng: Random) -> None:
        self.world, self.rng = world, rng
        self.taken: set[Dispatch] = set()
        self.sent = 0

    def act(self) -> None:
        bench = self.world.bench
        match self.rng.randrange(7):
            case 0 | 1:
                self._submit(bench)
            case 2:
                some = tuple(Dispatch(1, 1, self.rng.randrange(SAMPLES)) for _ in range(2))
                bench.command(CutSamples(FENCE, some))
            case 3:
                bench.command(LoadPolicy(FENCE, self.rng.choice([OLD, NEW]), BLOB))
            case 4:
                self.settle(0.5)
            case 5:
                bench.tell(Tick(), after=self.rng.choice([0.1, 3.0]))
            case 6:
                stale = CutSamples(Fence(1, 2), tuple(self.taken))
                assert not isinstance(bench.command(stale), Ok)
        self.world.take()

    def _submit(self, bench: Bench) -> None:
        seq = self.rng.randrange(SAMPLES)
        policy = bench.actor.policy or OLD
        sample = assign(seq, policy=policy, resume=self.rng.choice([0, 0, 3]))
        if isinstance(bench.command(Submit(FENCE, (sample,))), Ok):
            self.taken.add(sample.dispatch)

    def settle(self, share: float) -> None:
        facts = [f for e in self.world.bench.of(Publish) for f in e.facts]
        some = tuple({f.dispatch for f in facts if self.rng.random() < share})
        half = len(some) // 2
        self.world.bench.command(Settle(FENCE, some[:half], some[half:]))
        self.world.take()


def _play(seed: int, steps: int) -> tuple[World, _Planner]:
    rng = Random(seed)  # noqa: S311
    bench = Bench()
    bench.command(LoadPolicy(FENCE, OLD, BLOB))
    world = World(bench, rng)
    planner = _Planner(world, rng)
    for _ in range(steps):
        act = rng.choice([planner.act, world.decode, world.answer])
        if act != world.answer or world.pending:
            act()
        _check_inventory(bench, planner.taken, world)
    return world, planner


def _check_inventory(bench: Bench, taken: set[Dispatch], world: World) -> None:
    """What was taken and not settled is in running or in the outbox, never in both."""
    running, outbox = set(bench.running()), set(bench.outbox())
    settled = {each.fact.dispatch.seq for each in world.settled}
    assert running | outbox == {d.seq for d in taken} - settled
    assert not running & outbox


def _facts(world: World) -> dict[Dispatch, set[Terminal]]:
    facts: dict[Dispatch, set[Terminal]] = {}
    for effect in world.bench.of(Publish):
        for fact in effect.facts:
            facts.setdefault(fact.dispatch, set()).add(fact)
    return facts


runs = given(st.integers(0, 1 << 40), st.integers(0, 120))


@runs
@settings(max_examples=150, deadline=None)
def test_every_dispatch_ends_in_exactly_one_fact(seed: int, steps: int) -> None:
    world, planner = _play(seed, steps)
    world.calm()
    facts = _facts(world)
    assert set(facts) == planner.taken
    assert all(len(told) == 1 for told in facts.values())
    assert world.bench.running() == {}


@runs
@settings(max_examples=100, deadline=None)
def test_a_cut_names_no_more_than_its_journal_holds(seed: int, steps: int) -> None:
    world, _ = _play(seed, steps)
    world.calm()
    for dispatch, told in _facts(world).items():
        for fact in told:
            if isinstance(fact, Cut) and fact.journal:
                held = world.journal[dispatch]
                assert set(range(fact.n_tokens)) <= held
            assert isinstance(fact, Finished | Cut | Failed)


@runs
@settings(max_examples=100, deadline=None)
def test_each_fact_is_settled_once(seed: int, steps: int) -> None:
    world, planner = _play(seed, steps)
    world.calm()
    for _ in range(2):
        planner.settle(1.0)
    assert world.bench.outbox() == []
    counts = Counter(each.fact.dispatch for each in world.settled)
    assert set(counts) == planner.taken
    assert set(counts.values()) <= {1}


@runs
@settings(max_examples=100, deadline=None)
def test_a_draining_actor_goes_once_all_is_settled_and_not_before(seed: int, steps: int) -> None:
    world, planner = _play(seed, steps)
    world.bench.tell(Leave())
    world.take()
    world.calm()
    assert world.gone == (world.bench.outbox() == [])
    planner.settle(1.0)
    assert world.gone
