"""From the fact that brings a ticket to the engine: no KV that is late, or of something else.

A ticket passes the planner, which keeps it for one sample, the actor, which names what it wants,
and the transfer, which holds the bytes. Each rule here is something that may happen between; a
model beside them says when the engine gets KV, and that it gets it then.
"""

from __future__ import annotations

import asyncio
import io
from types import SimpleNamespace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule
from msgspec.structs import replace
from prometheus_client import CollectorRegistry

from ebbtide import logs
from ebbtide.kv import kv_key
from ebbtide.ports import Resumed
from ebbtide.testing.engines import admission
from ebbtide.testing.transfer import FakeHost, FakeTransfer
from ebbtide.wire import KvTicket, PolicyRef, pack_floats, pack_ints
from services.decode.app.handover import Handover
from services.decode.app.metrics import DecodeMetrics
from services.decode.core.messages import Fetched
from services.planner.core.tickets import Tickets
from tests.worlds.transfers import Hands, blocks

ACTORS = ("a0", "a1", "a2")
POLICIES = tuple(PolicyRef(n, 1, f"digest {n}") for n in range(2))
LAYOUTS = ("f32", "bf16")
PROMPT, LEASE = (5, 6, 7), 30.0
samples, actors = st.integers(0, 1), st.sampled_from(ACTORS)
policies, layouts = st.sampled_from(POLICIES), st.sampled_from(LAYOUTS)


def _text(sample: int, tokens: int) -> list[int]:
    return [10 * sample + n for n in range(tokens)]


class Rights(RuleBasedStateMachine):
    """`newest`: per sample the ticket that the planner has last been told of, and when."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Hands()
        host = FakeHost(self.clock)
        self.transfers = {name: FakeTransfer(host, name=name) for name in ACTORS}
        self.kept = Tickets()
        self.newest: dict[int, tuple[KvTicket, float]] = {}
        self.until: dict[bytes, float] = {}
        self.written = [1, 1]

    @rule(sample=samples, holder=actors, reader=actors, policy=policies, layout=layouts)
    def a_sample_is_cut(
        self, sample: int, holder: str, reader: str, policy: PolicyRef, layout: str
    ) -> None:
        text = pack_ints([*PROMPT, *_text(sample, self.written[sample])])
        n = len(text) // 4 - 1
        kv = blocks(kv_key(policy, text, n, layout), 8 * n)
        coming = self.transfers[holder].export(kv, reader=reader, seconds=LEASE)
        ticket = asyncio.run(coming)
        self.until[ticket.opaque] = self.clock.now() + LEASE
        self.kept.keep(sample, ticket, self.clock.now())
        self.newest[sample] = (ticket, self.clock.now())

    @rule(sample=samples, reader=actors, policy=policies, layout=layouts, late=st.booleans())
    def it_goes_on(
        self, sample: int, reader: str, policy: PolicyRef, layout: str, *, late: bool
    ) -> None:
        """The planner hands it out; the command may be long on its way."""
        ticket = self.kept.of(sample, reader, policy, self.clock.now())
        assert (ticket is not None) == self._kept_for(sample, reader, policy)
        if late:
            self.clock.at += 40.0
        self._pulled(sample, ticket, reader, policy, layout)

    @precondition(lambda self: self.newest)
    @rule(sample=samples)
    def it_goes_on_as_it_should(self, sample: int) -> None:
        """Where it was meant to, at once."""
        if sample in self.newest:
            key, reader = self.newest[sample][0].key, self.newest[sample][0].reader
            [policy] = [one for one in POLICIES if one.digest == key.policy_digest]
            self.it_goes_on(sample, reader, policy, key.layout, late=False)

    @precondition(lambda self: self.newest)
    @rule(sample=samples, other=samples, reader=actors, policy=policies, layout=layouts)
    def a_ticket_comes_with_the_wrong_sample(
        self, sample: int, other: int, reader: str, policy: PolicyRef, layout: str
    ) -> None:
        """Whatever an erring planner sends: the actor looks for itself."""
        ticket, _ = self.newest.get(other, (None, 0.0))
        self._pulled(sample, ticket, reader, policy, layout)

    @rule(sample=samples)
    def more_is_written(self, sample: int) -> None:
        self.written[sample] += 1

    @rule(sample=samples)
    def its_tokens_are_lost(self, sample: int) -> None:
        self.kept.drop(sample)
        self.newest.pop(sample, None)
        self.written[sample] = 1

    @rule(seconds=st.sampled_from([1.0, 9.0, 25.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.at += seconds

    @precondition(lambda self: self.newest)
    @rule(sample=samples)
    def its_holder_takes_it_back(self, sample: int) -> None:
        if sample in self.newest:
            ticket, _ = self.newest[sample]
            self.transfers[ticket.holder].release(ticket)
            self.until.pop(ticket.opaque, None)

    def _kept_for(self, sample: int, reader: str, policy: PolicyRef) -> bool:
        if sample not in self.newest:
            return False
        ticket, since = self.newest[sample]
        in_time = self.clock.now() < since + LEASE / 3
        return in_time and (ticket.reader, ticket.key.policy_digest) == (reader, policy.digest)

    def _pulled(
        self, sample: int, ticket: KvTicket | None, reader: str, policy: PolicyRef, layout: str
    ) -> None:
        tokens = pack_ints(_text(sample, self.written[sample]))
        text = pack_ints(PROMPT) + tokens
        n = ticket.key.n_tokens if ticket else 0
        fits = 0 < n < len(text) // 4
        wanted = kv_key(policy, text, n, layout) if fits else None
        may = (
            ticket is not None
            and ticket.key == wanted
            and ticket.reader == reader
            and self.clock.now() < self.until.get(ticket.opaque, 0.0)
        )
        kv = asyncio.run(self._pull(ticket, tokens, reader, policy, layout))
        assert (kv is not None) == may
        if kv is not None and ticket is not None:
            assert kv.key == wanted
            assert bytes(kv.data) == bytes(blocks(kv.key, 8 * n).data)
            del self.until[ticket.opaque]

    async def _pull(
        self, ticket: KvTicket | None, tokens: bytes, reader: str, policy: PolicyRef, layout: str
    ) -> Any:
        assign = replace(admission(policy, prompt=PROMPT).assign, ticket=ticket)
        resumed = Resumed(tokens, pack_floats([0.0] * (len(tokens) // 4)), ())
        engine: Any = SimpleNamespace(caps=SimpleNamespace(kv_layout=layout))
        hands = Handover(
            transfer=self.transfers[reader],
            engine=engine,
            metrics=DecodeMetrics(CollectorRegistry()),
            log=logs.setup("error", stream=io.StringIO(), role="decode"),
            hold=LEASE,
            patience=5.0,
        )
        return await hands.pull(assign, Fetched(assign.dispatch, pack_ints(PROMPT), resumed))


Rights.TestCase.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)
TestRights = Rights.TestCase
