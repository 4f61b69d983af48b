"""A cut with a reader: running, cut, holding, released."""

from __future__ import annotations

from ebbtide.wire import Cut, Dispatch, Drain, KvTicket
from services.decode.core.messages import (
    Admit,
    CutEngine,
    Export,
    Exported,
    Fetched,
    Gone,
    Release,
    StillOpen,
)
from tests.unit.decode.rigs import (
    FENCE,
    READER,
    Rig,
    assign,
    blocks,
    hand,
    has_finished,
    ticket,
    was_cut,
)

NOTHING = StillOpen(frozenset())


def cut(rig: Rig, n: int = 3) -> Dispatch:
    """Cut for a reader, its journal whole and its KV on the way out."""
    dispatch = rig.run()
    rig.cut(dispatch, reader=READER)
    rig.happen(was_cut(dispatch, n, blocks(n)))
    rig.journalled(dispatch, n)
    return dispatch


def held(rig: Rig) -> tuple[Dispatch, KvTicket]:
    """Cut, and its KV held."""
    dispatch = cut(rig)
    rig.tell(Exported(dispatch, ticket(dispatch)))
    return dispatch, ticket(dispatch)


def test_a_cut_with_a_reader_asks_the_engine_for_kv() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.cut(dispatch, reader=READER)
    assert rig.of(CutEngine) == [CutEngine(dispatch, export=True)]
    rig.happen(was_cut(dispatch, 3, blocks(3)))
    assert rig.of(Export) == [Export(dispatch, blocks(3), READER)]


def test_the_fact_waits_for_its_ticket_and_brings_it() -> None:
    rig = Rig()
    dispatch = cut(rig)
    assert rig.facts == []
    rig.tell(Exported(dispatch, ticket(dispatch)))
    [fact] = rig.facts
    assert isinstance(fact, Cut)
    assert (fact.ticket, fact.n_tokens) == (ticket(dispatch), 3)
    assert rig.beat().holding == (dispatch,)


def test_a_cut_whose_kv_cannot_be_held_has_no_ticket() -> None:
    rig = Rig()
    rig.tell(Exported(cut(rig), None))
    [fact] = rig.facts
    assert isinstance(fact, Cut)
    assert fact.ticket is None
    assert rig.beat().holding == ()


def test_an_engine_that_gives_no_kv_makes_no_ticket() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.cut(dispatch, reader=READER)
    rig.happen(was_cut(dispatch, 3))
    rig.journalled(dispatch, 3)
    assert (rig.of(Export), len(rig.facts)) == ([], 1)


def test_a_cut_that_meets_the_finish_holds_nothing() -> None:
    rig = Rig()
    dispatch = rig.run()
    rig.cut(dispatch, reader=READER)
    rig.happen(has_finished(dispatch, 3))
    assert (rig.of(Export), rig.beat().holding) == ([], ())


def test_a_fact_that_could_not_wait_releases_what_comes_later() -> None:
    rig = Rig()
    dispatch = cut(rig)
    rig.wait(10.1)
    [fact] = rig.facts
    assert isinstance(fact, Cut)
    assert fact.ticket is None
    rig.tell(Exported(dispatch, ticket(dispatch)))
    assert rig.of(Release) == [Release(ticket(dispatch))]


def test_a_leaving_actor_stays_until_its_kv_was_read() -> None:
    rig = Rig()
    dispatch, held_by = held(rig)
    rig.command(Drain(FENCE))
    rig.settle(dispatch)
    assert rig.of(Gone) == []
    rig.tell(StillOpen(frozenset([held_by.opaque])))
    assert rig.of(Gone) == []
    rig.tell(NOTHING)
    assert rig.of(Gone) == [Gone(orphaned=False)]


def test_a_leaving_actor_stays_no_longer_than_the_ticket() -> None:
    rig = Rig()
    dispatch, _ = held(rig)
    rig.command(Drain(FENCE))
    rig.settle(dispatch)
    rig.wait(29.9)
    assert rig.of(Gone) == []
    rig.wait(0.2)
    assert rig.of(Gone) == [Gone(orphaned=False)]


def test_a_void_cut_is_released_at_once() -> None:
    rig = Rig()
    dispatch, held_by = held(rig)
    rig.settle(void=(dispatch,))
    assert rig.of(Release) == [Release(held_by)]
    assert rig.beat().holding == ()


def test_an_accepted_cut_goes_on_being_held() -> None:
    rig = Rig()
    dispatch, _ = held(rig)
    rig.settle(dispatch)
    assert (rig.of(Release), rig.beat().holding) == ([], (dispatch,))


def test_kv_that_was_pulled_goes_to_the_engine_with_its_sample() -> None:
    rig = Rig()
    rig.submit(assign(hand()))
    rig.tell(Fetched(hand(), b"prompt", None, blocks(2)))
    assert rig.of(Admit) == [Admit(assign(hand()), b"prompt", None, blocks(2))]
