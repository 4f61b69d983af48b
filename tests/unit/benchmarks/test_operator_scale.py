"""What the API server's log says of changes, and what of it the operator has added."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from benchmarks.operator_scale.trail import (
    OPERATOR,
    PODS,
    POOLS,
    STARTED,
    TOLD,
    Change,
    Request,
    delays,
    request,
)

NEW = "job-1-decode-20"
GROWN = Change("job-1", 21, news=10.3)
SPEC = Request("admin", "patch", POOLS, "job-1", 10.0, 10.2)
MADE = Request(OPERATOR, "create", PODS, NEW, 10.5, 10.6)
READY = Request("admin", "patch", STARTED, NEW, 11.0, 11.1)
COUNTED = Request(OPERATOR, "patch", TOLD, "job-1", 12.0, 12.1, ready=21)


def test_what_is_added_is_the_time_between_one_answer_and_the_next_request() -> None:
    found = delays([SPEC, MADE, READY, COUNTED], [GROWN])
    assert found.written == pytest.approx([0.3])
    assert found.reported == pytest.approx([0.9])
    assert found.watched == pytest.approx([0.1])


def test_the_whole_holds_both_of_the_servers_own_parts() -> None:
    found = delays([SPEC, MADE, READY, COUNTED], [GROWN])
    assert found.written_whole == pytest.approx([0.6])
    assert found.reported_whole == pytest.approx([1.1])


def test_a_status_that_counts_no_more_actors_than_before_tells_nothing() -> None:
    early = replace(COUNTED, came=11.2, ready=None)
    assert delays([SPEC, MADE, READY, early, COUNTED], [GROWN]).reported == pytest.approx([0.9])


def test_a_request_that_was_refused_is_none() -> None:
    refused = replace(MADE, came=10.3, code=409)
    assert delays([SPEC, refused, MADE, READY, COUNTED], [GROWN]).written == pytest.approx([0.3])


def test_of_a_smaller_pool_the_end_of_the_named_actor_counts() -> None:
    other = Request(OPERATOR, "delete", PODS, "job-1-decode-3", 10.3, 10.4)
    named = Request(OPERATOR, "delete", PODS, "job-1-decode-4", 10.7, 10.8)
    found = delays([SPEC, other, named], [Change("job-1", 19, "job-1-decode-4")])
    assert found.written == pytest.approx([0.5])


def test_changes_of_one_job_are_told_apart_by_their_order() -> None:
    again = [SPEC, MADE, READY, COUNTED]
    later = [replace(one, came=one.came + 100, answered=one.answered + 100) for one in again]
    found = delays(again + later, [GROWN, replace(GROWN, news=110.3)])
    assert found.written == pytest.approx([0.3, 0.3])


@pytest.mark.parametrize("missing", [MADE, READY, COUNTED])
def test_a_change_without_an_answer_is_no_change_that_was_quick(missing: Request) -> None:
    with pytest.raises(AssertionError, match="has no such request"):
        delays([one for one in (SPEC, MADE, READY, COUNTED) if one != missing], [GROWN])


def test_a_line_of_the_log_is_read_with_the_count_that_it_told() -> None:
    line = {
        "verb": "patch",
        "stage": "ResponseComplete",
        "requestReceivedTimestamp": "2026-01-02T00:00:00.250000Z",
        "stageTimestamp": "2026-01-02T00:00:00.500000Z",
        "user": {"username": OPERATOR},
        "objectRef": {"resource": "decodepools", "subresource": "status", "name": "job-1"},
        "responseStatus": {"code": 200},
        "requestObject": {"status": {"readyReplicas": 21}},
    }
    found = request(msgspec.json.encode(line))
    assert found is not None
    assert (found.what, found.name, found.ready, found.took) == (TOLD, "job-1", 21, 0.25)


def test_a_watch_that_has_only_begun_is_not_answered() -> None:
    line = {
        "verb": "watch",
        "stage": "ResponseStarted",
        "requestReceivedTimestamp": "2026-01-02T00:00:00Z",
        "stageTimestamp": "2026-01-02T00:00:01Z",
    }
    assert request(msgspec.json.encode(line)) is None
