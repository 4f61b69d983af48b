"""Laws of the gateway's pure parts."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ebbtide.ports import Meta, Resource
from ebbtide.usage import Usage
from services.gateway.core import cost, listing, preconditions
from services.gateway.core.limits import MAX_BUCKETS, Buckets
from services.gateway.core.listing import Query
from services.gateway.core.problems import KINDS, Problem
from services.gateway.core.state import TERMINAL, state_of
from services.gateway.core.submit import fingerprint
from services.gateway.core.tally import Gains
from tests.worlds.gateway import condition

CAUSES = ("busy", "loading", "idle", "parked", "draining", "wasted")
ROLES = st.sampled_from(["decode", "learner", "planner"])
SECONDS = st.floats(0, 1e5)
USAGES = st.lists(st.tuples(ROLES, st.sampled_from(["a", "b"]), SECONDS), max_size=6)
PODS = st.sampled_from(["pod-0", "pod-1", "pod-2"])
SPENT = st.dictionaries(st.tuples(ROLES, PODS, st.sampled_from(CAUSES)), SECONDS, max_size=6)
Spent = dict[tuple[str, str, str], float]


def job(name: str, created: str = "", **status: object) -> Resource:
    return Resource("v1", "RLHFJob", Meta(name, creation_timestamp=created), status=status)


def usages(held: list[tuple[str, str, float]]) -> list[Usage]:
    return [
        Usage("u", role, f"pod-{number}", "x", pool, 1, 0.0, seconds, seconds)
        for number, (role, pool, seconds) in enumerate(held)
    ]


PRICES = {"a": cost.Price(1.0, parked=0.25), "b": cost.Price(3.0)}


def reported(
    held: list[tuple[str, str, float]], spent: Spent, **prices: cost.Price
) -> dict[str, Any]:
    found = cost.account(usages(held), spent, prices=prices)
    return cost.report(found, currency="USD", gains=Gains())


# --- cost ---------------------------------------------------------------------------------------


@given(USAGES, SPENT)
def test_every_held_second_is_in_exactly_one_part(
    held: list[tuple[str, str, float]], spent: Spent
) -> None:
    found = reported(held, spent)
    parts = sum(part["seconds"] for part in found["parts"])
    assert parts == pytest.approx(found["heldSeconds"], abs=1e-3)


@given(USAGES, SPENT)
def test_parts_add_up_to_the_whole_cost_whatever_the_causes_say(
    held: list[tuple[str, str, float]], spent: Spent
) -> None:
    found = reported(held, spent, **PRICES)
    parts = sum(part["cost"] or 0.0 for part in found["parts"])
    assert parts == pytest.approx(found["total"], rel=1e-6, abs=1e-3)


@given(USAGES)
def test_a_total_is_known_only_if_every_held_second_has_a_price(
    held: list[tuple[str, str, float]],
) -> None:
    found = reported(held, {}, a=PRICES["a"])
    unpriced = sum(seconds for _, pool, seconds in held if pool == "b")
    assert (found["total"] is None) == (unpriced > 1e-6)


def test_costs_are_told_apart_by_how_nodes_are_sold() -> None:
    entries = [
        {"pool": "a", "perHour": 1.0, "capacityType": "spot"},
        {"pool": "b", "perHour": 3.0, "capacityType": "on-demand"},
        {"pool": "c", "perHour": 3.0},
    ]
    prices = cost.prices_of({"prices": entries})
    held = [("decode", pool, 3600.0) for pool in "aabcd"]
    parts = cost.grouped(cost.account(usages(held), {}, prices=prices).lines, ("capacity",))
    found = {part["capacity"]: (part["seconds"], part["cost"]) for part in parts}
    assert found == {"on-demand": (3600.0, 3.0), "spot": (7200.0, 2.0), "unknown": (7200.0, None)}


@pytest.mark.parametrize(("pool", "asleep", "total"), [("a", 0.25, 1.25), ("b", 3.0, 6.0)])
def test_an_actor_asleep_costs_its_share_of_the_price(
    pool: str, asleep: float, total: float
) -> None:
    spent = {("decode", "pod-0", cause): 3600.0 for cause in ("busy", "parked")}
    found = reported([("decode", pool, 7200.0)], spent, **PRICES)
    parts = {part["cause"]: part["cost"] for part in found["parts"]}
    assert parts == {"busy": pytest.approx(total - asleep), "parked": pytest.approx(asleep)}
    assert found["total"] == found["known"] == found["byRole"]["decode"] == pytest.approx(total)


# --- lists --------------------------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 50)), max_size=30, unique=True),
    st.integers(1, 7),
    st.sets(st.integers(0, 29), max_size=5),
)
def test_paging_gives_each_job_once_whatever_is_deleted_meanwhile(
    stamps: list[tuple[int, int]], limit: int, deleted: set[int]
) -> None:
    jobs = [job(f"j{n}-{k}", str(t)) for n, (t, k) in enumerate(stamps)]
    kept = [one for n, one in enumerate(jobs) if n not in deleted]
    seen: list[str] = []
    after = None
    for _ in range(len(jobs) + 1):
        page, after = listing.page(jobs if not seen else kept, Query(), after=after, limit=limit)
        seen += [one.metadata.name for one in page]
        if after is None:
            break
    assert after is None
    assert len(set(seen)) == len(seen)
    assert {one.metadata.name for one in kept} <= set(seen)


@given(st.binary(max_size=64))
def test_no_made_up_cursor_is_taken_or_breaks(data: bytes) -> None:
    text = data.decode("latin-1")
    with suppress(Problem):
        assert isinstance(listing.decode(text, listing.Cursor), listing.Cursor)


# --- limits -------------------------------------------------------------------------------------


@given(st.lists(st.floats(0, 10), max_size=60), st.floats(0.1, 20), st.integers(1, 10))
def test_no_window_grants_more_than_burst_and_rate(
    gaps: list[float], rate: float, burst: int
) -> None:
    buckets, now, granted = Buckets(rate=rate, burst=burst), 0.0, 0
    for gap in gaps:
        now += gap
        granted += buckets.take("t", now) == 0.0
    assert granted <= burst + rate * now + 1e-6


@given(st.floats(0.1, 20))
def test_waiting_as_long_as_told_is_enough(rate: float) -> None:
    buckets = Buckets(rate=rate, burst=1)
    assert buckets.take("t", 0.0) == 0.0
    wait = buckets.take("t", 0.0)
    assert buckets.take("t", wait + 1e-9) == 0.0


def test_buckets_of_many_addresses_do_not_pile_up() -> None:
    buckets = Buckets(rate=1.0, burst=1)
    for number in range(MAX_BUCKETS + 10):
        buckets.take(str(number), 0.0)
    assert len(buckets._levels) == MAX_BUCKETS


# --- states -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("conditions", "state"),
    [
        ([], "Pending"),
        ([condition("Accepted")], "Starting"),
        ([condition("Accepted", "False", reason="SpecInvalid")], "Pending"),
        ([condition("Accepted"), condition("Running")], "Running"),
        ([condition("Accepted"), condition("Running", "False")], "Starting"),
        ([condition("Running"), condition("Draining")], "Draining"),
        ([condition("Suspended"), condition("Draining", "False")], "Suspended"),
        ([condition("Complete"), condition("Draining")], "Complete"),
        ([condition("Failed", reason="StallDeadlineExceeded")], "Failed"),
        ([condition("Failed", reason="Cancelled")], "Cancelled"),
    ],
)
def test_the_state_follows_from_the_conditions(
    conditions: list[dict[str, str]], state: str
) -> None:
    found = state_of(job("demo", conditions=conditions))
    assert found.name == state
    assert found.terminal == (state in TERMINAL)


# --- the rest -----------------------------------------------------------------------------------


@given(st.dictionaries(st.text(max_size=5), st.integers() | st.text(max_size=5), max_size=5))
def test_a_fingerprint_does_not_depend_on_the_order_of_keys(values: dict[str, object]) -> None:
    shuffled = dict(reversed(values.items()))
    assert fingerprint(values) == fingerprint(shuffled)
    assert fingerprint({**values, "extra": 1}) != fingerprint(values)


@given(st.integers(1, 2**63).map(str))
def test_an_etag_names_its_version(version: str) -> None:
    tag = preconditions.etag(version)
    assert preconditions.expected(tag) == version
    assert preconditions.unchanged(f'"0", W/{tag}', version)


def test_every_problem_has_a_row_in_the_docs() -> None:
    with open("docs/api/README.md", encoding="utf-8") as page:  # noqa: PTH123 - the short form
        text = page.read()
    missing = [name for name, kind in KINDS.items() if f"| {name} | {kind.status} |" not in text]
    assert missing == []
