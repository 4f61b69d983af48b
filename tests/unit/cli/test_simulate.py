from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from ebbtide.cli.commands import app
from tests.unit.planner.simulate.small import DOCUMENT


def run(*args: str) -> int:
    return CliRunner().invoke(app, ["simulate", *args]).exit_code


def test_a_scenario_becomes_a_table_and_a_page(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump({**DOCUMENT, "policies": ["static", "ours"]}))
    out = tmp_path / "out"
    assert run(str(file), "--seeds", "1", "--workers", "1", "--quick", "--out", str(out)) == 0
    assert capfd.readouterr().out.startswith("policy")
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "report.json"]


def test_policies_that_are_not_on_policy_are_marked_with_one_legend(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump({**DOCUMENT, "policies": ["static", "async"]}))
    assert run(str(file), "--seeds", "1", "--workers", "1", "--quick") == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:3]] == ["static", "async*"]
    assert sum(line.startswith("* not on-policy") for line in lines) == 1


def test_wrong_input_is_code_2_and_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump({**DOCUMENT, "model": "gpt-9"}))
    assert run(str(file)) == 2
    assert "/model: unknown model gpt-9, one of: qwen2.5-0.5b" in capfd.readouterr().err
