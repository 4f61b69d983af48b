"""A state folder of which a part is damaged or gone: one clear line, and a way on."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from ebbtide.cli import local
from ebbtide.cli.commands import app
from ebbtide.cli.doctor import troubles
from ebbtide.endpoint import UP_FILE, Up, damage, read_up, write_up


def run(command: str, state: Path) -> Any:
    return CliRunner().invoke(app, [command, "--state-dir", str(state)])


def test_a_damaged_file_is_as_if_nothing_had_been_started(tmp_path: Path) -> None:
    (tmp_path / UP_FILE).write_text('{"x')
    assert read_up(tmp_path) is None
    assert str(tmp_path / UP_FILE) in damage(tmp_path)
    write_up(tmp_path, Up("http://here", "token", "state"))
    assert damage(tmp_path) == ""


def test_up_and_down_say_that_the_file_is_damaged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / UP_FILE).write_text('{"x')
    monkeypatch.setattr(local, "_MODULE", "no_such_module_x")
    for command, words in (("up", "could not start:"), ("down", "nothing is running")):
        found = run(command, tmp_path)
        assert f"{UP_FILE} is damaged" in found.stderr
        assert words in found.output
        assert "bug" not in found.output


def test_a_state_folder_that_is_a_file_is_refused_with_a_way_out(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    found = run("up", file)
    assert found.exit_code == 2
    assert f"{file} cannot be the state folder: it is a file; choose another" in found.stderr
    assert "nothing is running" in run("down", file).stdout


def test_a_sweep_that_fails_has_said_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "servers").mkdir()
    monkeypatch.setattr(local, "_SWEEP", "no_such_module_x")
    found = run("down", tmp_path)
    assert found.exit_code == 1
    assert "bug" not in found.output


def test_down_names_the_damaged_store_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "servers").mkdir()
    (tmp_path / "cluster.sqlite").write_bytes(b"no database" * 1000)
    command = [sys.executable, "-m", "ebbtide_operator.down", "--state", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert f"{tmp_path / 'cluster.sqlite'}: file is not a database" in done.stderr
    assert "put back a good copy" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_the_doctor_says_what_is_tried_again(tmp_path: Path, owner: int) -> None:
    suffers = {"gateway": "port 8470 is taken; it is started again"}
    write_up(tmp_path, Up("http://here", "t", "s", pids={"up": owner}, troubles=suffers))
    (found,) = troubles(tmp_path)
    assert (found.check, found.verdict, found.found) == ("gateway", "warn", suffers["gateway"])
    (tmp_path / UP_FILE).write_text("{")
    assert [finding.check for finding in troubles(tmp_path)] == ["platform"]
