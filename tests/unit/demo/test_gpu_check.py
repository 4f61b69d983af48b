"""The check of a machine: within its time, and without pretence."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.gpu_check import CHECKS, Check, Row, capabilities, run_all, run_one
from benchmarks.harness import load_targets


def test_no_check_takes_more_than_what_is_left() -> None:
    given = []

    def run(check: Check, seconds: float) -> Row:
        given.append(seconds)
        return Row(check.name, "holds", seconds, "")

    checks = [Check(str(n), (), 40) for n in range(4)]
    rows = list(run_all(checks, budget=100, run=run))
    assert given == [40, 40, 20]
    assert [row.verdict for row in rows] == ["holds", "holds", "holds", "no time"]


def test_what_only_a_gpu_or_rdma_has_is_absent_elsewhere(tmp_path: Path) -> None:
    assert {row.verdict for row in capabilities("", tmp_path)} == {"absent"}
    (tmp_path / "mlx5_0").touch()
    found = {row.name: row.verdict for row in capabilities("a GPU", tmp_path)}
    assert (found["GPU"], found["RDMA"], found["sleep and wake of vLLM"]) == (
        "holds",
        "holds",
        "absent",
    )


@pytest.mark.parametrize(
    ("code", "seconds", "verdict"),
    [
        ("print(7)", 60, "holds"),
        ("raise SystemExit(1)", 60, "fails"),
        ("import time; time.sleep(600)", 1, "late"),
    ],
)
def test_a_check_holds_fails_or_is_late(code: str, seconds: float, verdict: str) -> None:
    assert run_one(Check("c", ("python", "-c", code), 60), seconds).verdict == verdict


def test_every_check_is_something_that_the_repository_has() -> None:
    assert {check.words[0] for check in CHECKS} == {"make", "python"}
    root = Path(__file__).parents[3]
    targets = (root / "Makefile").read_text()
    made = [check.words[2] for check in CHECKS if check.words[0] == "make"]
    assert all(f"\n{name}:" in targets for name in made)
    measured = [check.words[3] for check in CHECKS if check.words[2] == "benchmarks"]
    assert set(measured) <= set(load_targets())
