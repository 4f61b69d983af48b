"""Dashboards, rules and runbooks name what exists, and each rule does what it says."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from ebbtide.catalogue import METRICS
from ebbtide.dashboards import BOARDS, Board, Panel

ROOT = Path(__file__).parents[2]
ALERTS = ROOT / "deploy/alerts"
RULES = sorted(ALERTS.glob("*.yaml"))
TESTS = sorted((ALERTS / "tests").glob("*.yaml"))
SERIES = {name for metric in METRICS.values() for name in metric.series_names}
NAME = re.compile(r"\b(?:ebbtide|process)[_:][a-z0-9_:]+")
PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
PANELS = [(board, panel) for board in BOARDS for panel in board.panels]


def rules(kind: str) -> list[dict[str, Any]]:
    groups = [g for path in RULES for g in yaml.safe_load(path.read_text("utf-8"))["groups"]]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


def named(expr: str) -> set[str]:
    return set(NAME.findall(expr))


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.fail("promtool is missing: run deploy/prometheus/install.sh as root")


@pytest.mark.parametrize(("board", "panel"), PANELS, ids=lambda x: getattr(x, "title", ""))
def test_a_panel_says_what_it_shows_and_asks_for_metrics_that_exist(
    board: Board, panel: Panel
) -> None:
    assert panel.title
    assert panel.unit
    assert panel.about.endswith(".")
    for query in panel.queries:
        assert named(query.expr) <= SERIES | PROCESS
        assert "vector(" not in query.expr
        assert set(re.findall(r"\$(\w+)", query.expr)) <= {
            "namespace",
            "rlhf_job",
            "__rate_interval",
        }
        assert board.job == ("$rlhf_job" in query.expr)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_a_board_has_distinct_panels_and_leads_to_boards_that_exist(board: Board) -> None:
    titles = [panel.title for panel in board.panels]
    assert len(set(titles)) == len(titles)
    assert set(board.links) <= {other.uid for other in BOARDS} - {board.uid}
    assert board.links


def test_rules_ask_for_metrics_that_exist() -> None:
    recorded = {rule["record"] for rule in rules("record")}
    unknown = {
        rule.get("alert") or rule["record"]: left
        for rule in [*rules("alert"), *rules("record")]
        if (left := named(rule["expr"]) - SERIES - recorded)
    }
    assert unknown == {}


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    pages = {p.read_text("utf-8").splitlines()[0]: p for p in (ROOT / "docs/runbooks").glob("*.md")}
    linked = {f"# {r['alert']}": ROOT / r["annotations"]["runbook_url"] for r in rules("alert")}
    assert linked == pages


def test_every_rule_is_tested_both_ways() -> None:
    tested = [t for path in TESTS for t in yaml.safe_load(path.read_text("utf-8"))["tests"]]
    alerts = [a for test in tested for a in test.get("alert_rule_test", ())]
    names = {rule["alert"] for rule in rules("alert")}
    assert {a["alertname"] for a in alerts if a["exp_alerts"]} == names
    assert {a["alertname"] for a in alerts if not a["exp_alerts"]} == names
    asked = {q["expr"] for test in tested for q in test.get("promql_expr_test", ())}
    assert {rule["record"] for rule in rules("record")} <= asked


def test_every_rule_loads() -> None:
    found = promtool("check", "rules", *RULES)
    assert found.returncode == 0, found.stdout + found.stderr


@pytest.mark.parametrize("path", TESTS, ids=lambda path: path.name)
def test_every_rule_does_what_its_test_says(path: Path) -> None:
    found = promtool("test", "rules", path)
    assert found.returncode == 0, found.stdout + found.stderr
