"""When a status is written."""

from __future__ import annotations

from ebbtide_operator.pace import Pace

JOB = ("default", "job")


def test_counts_of_pods_wait_and_are_then_written_together() -> None:
    pace = Pace(seconds=0.5)
    assert pace.wait(JOB, "DecodePool", {"pendingReplicas": 1}, 10.0) == 0.5
    assert pace.wait(JOB, "DecodePool", {"readyReplicas": 1}, 10.25) == 0.25
    assert pace.wait(JOB, "DecodePool", {"readyReplicas": 1}, 10.5) == 0.0
    pace.written(JOB, "DecodePool")
    assert pace.wait(JOB, "DecodePool", {"readyReplicas": 2}, 10.5) == 0.5


def test_counts_whose_write_has_failed_wait_no_second_time() -> None:
    pace = Pace(seconds=0.5)
    pace.wait(JOB, "DecodePool", {"readyReplicas": 1}, 10.0)
    assert pace.wait(JOB, "DecodePool", {"readyReplicas": 1}, 10.5) == 0.0
    assert pace.wait(JOB, "DecodePool", {"readyReplicas": 1}, 10.6) == 0.0


def test_numbers_of_actors_wait_as_their_counts_do() -> None:
    pace = Pace(seconds=0.5)
    assert pace.wait(JOB, "DecodePool", {"nextIndex": 3, "pendingReplicas": 1}, 10.0) == 0.5
    assert pace.behind(JOB, "DecodePool")
    pace.written(JOB, "DecodePool")
    assert not pace.behind(JOB, "DecodePool")


def test_what_selects_the_pods_is_written_at_once() -> None:
    pace = Pace(seconds=0.5)
    assert pace.wait(JOB, "DecodePool", {"selector": "a=b", "replicas": 1}, 10.0) == 0.0


def test_how_a_job_stands_is_written_at_once_with_its_counts() -> None:
    pace = Pace(seconds=0.5)
    assert pace.wait(JOB, "RLHFJob", {"roles": []}, 10.0) == 0.5
    assert pace.wait(JOB, "RLHFJob", {"roles": [], "phase": "Complete"}, 10.1) == 0.0
    assert pace.wait(JOB, "RLHFJob", {"roles": []}, 10.2) == 0.5


def test_counts_that_are_as_written_again_wait_for_nothing() -> None:
    pace = Pace(seconds=0.5)
    pace.wait(JOB, "RLHFJob", {"roles": []}, 10.0)
    assert pace.wait(JOB, "RLHFJob", None, 10.4) == 0.0
    assert pace.wait(JOB, "RLHFJob", {"roles": []}, 10.6) == 0.5


def test_what_rounding_leaves_of_a_wait_is_none() -> None:
    pace, began, due = Pace(seconds=1.0), 0.1, 1.0999999999999999
    assert pace.wait(JOB, "RLHFJob", {"roles": []}, began) == 1.0
    assert 0.0 < began + 1.0 - due < 1e-9
    assert pace.wait(JOB, "RLHFJob", {"roles": []}, due) == 0.0
