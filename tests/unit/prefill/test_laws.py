"""Whatever happens in whatever order: what holds of answers, tickets and computations."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from ebbtide.wire import Granted, KvTicket
from services.prefill.core.messages import (
    Answer,
    Commanded,
    Compute,
    Computed,
    ComputeFailed,
    Drop,
    Export,
    Exported,
    Load,
    PolicyLoaded,
    StillOpen,
)
from tests.unit.prefill.rigs import LAYOUT, OTHER, POLICY, SIZE, Bench, load

MOVES = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask", "ask", "compute", "export", "fail", "load", "time"]),
        st.integers(0, 4),
        st.booleans(),
    ),
    max_size=60,
)


class Walk(Bench):
    """Does what it is asked in an order that the moves choose, and checks as it goes."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: dict[int, str] = {}
        self.answers: Counter[int] = Counter()
        self.computing: list[Compute] = []
        self.exporting: list[Export] = []
        self.loading: list[Load] = []
        self.kept: set[object] = set()

    def move(self, what: str, n: int, flag: bool) -> None:
        policy = OTHER if flag else POLICY
        if what == "ask":
            self.asked[self.ask(n, policy=policy)] = policy.digest
        elif what == "compute" and self.computing:
            done = self.computing.pop(n % len(self.computing))
            self.kept.add(done.key)
            self.post(Computed(done.key, SIZE))
        elif what == "fail" and self.computing:
            self.post(ComputeFailed(self.computing.pop(0).key, "no"))
        elif what == "export" and self.exporting:
            self.hand_over(self.exporting.pop(n % len(self.exporting)), well=flag)
        elif what == "load":
            self.post(Commanded(load(policy)))
        elif what == "time":
            self.loaded()
            self.tick(float(n))
        self.look()

    def hand_over(self, export: Export, *, well: bool) -> None:
        ticket = KvTicket(export.key, "p0", 1, export.reader, 30.0, b"x")
        self.post(Exported(export.number, ticket if well else None))

    def loaded(self) -> None:
        for effect in self.loading:
            self.post(PolicyLoaded(effect.policy, LAYOUT))
        self.loading = []

    def look(self) -> None:
        for effect in self.did(Compute):
            assert effect.key not in self.kept, "it is there"
            assert effect.key not in {other.key for other in self.computing}, "it is under way"
            assert effect.policy.digest == effect.key.policy_digest
            self.computing.append(effect)
        self.loading += self.did(Load)
        assert not (self.loading and self.computing), "a policy comes only while nothing runs"
        for export in self.did(Export):
            assert export.key in self.kept, "only what is there can be exported"
            self.exporting.append(export)
        self.kept -= {effect.key for effect in self.did(Drop)}
        assert len(self.kept) <= 3, "memory is bounded"
        for answer in self.did(Answer):
            self.answers[answer.number] += 1
            if isinstance(answer.reply, Granted):
                assert answer.reply.ticket.key.policy_digest == self.asked[answer.number]


@settings(max_examples=60, deadline=None)
@given(MOVES)
def test_every_request_is_answered_once_and_by_its_own_policy(
    moves: list[tuple[str, int, bool]],
) -> None:
    walk = Walk()
    for move in moves:
        walk.move(*move)
        walk.post(StillOpen(0))
        assert all(count == 1 for count in walk.answers.values())
    walk.tick(10.0)
    walk.look()
    assert walk.answers == Counter(walk.asked.keys())
