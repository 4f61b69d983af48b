"""`ebbtide profile`, from the job file to the profile file, in real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from typer.testing import CliRunner

from ebbtide.cli.commands import app
from ebbtide.profiles import check_profile, read_profile_file


def _job(folder: Path, **decode: Any) -> Path:
    spec = {
        "model": {"uri": "nowhere"},
        "dataset": {"train": {"type": "jsonl", "uri": "x"}, "maxPromptTokens": 24},
        "algorithm": {"type": "grpo"},
        "training": {"totalSteps": 1, "promptsPerStep": 4, "maxResponseTokens": 40},
        "reward": {"components": [{"type": "exact", "name": "a"}]},
        "decode": {"slots": 4, **decode},
    }
    path = folder / "job.json"
    kind = {"apiVersion": "rlhf.ebbtide.dev/v1alpha1", "kind": "RLHFJob"}
    path.write_text(json.dumps({**kind, "metadata": {"name": "a"}, "spec": spec}))
    return path


def _profile(folder: Path, *more: str, **decode: Any) -> Any:
    job, out = _job(folder, **decode), folder / "profile.json"
    return CliRunner().invoke(app, ["profile", str(job), "--out", str(out), *more])


def test_it_writes_the_file_and_shows_the_times(tmp_path: Path) -> None:
    emulation = {"tpotMs": 1.0, "tpotPerRowMs": 0.5}
    found = _profile(tmp_path, "--tokens", "4", engine="emulated", emulation=emulation)
    assert found.exit_code == 0, found.output
    assert "BATCH" in found.output
    file = read_profile_file((tmp_path / "profile.json").read_bytes())
    check_profile(file)
    assert file.batches == (1, 2, 4)
    assert list(file.startup) == ["process", "imports", "engine"]
    # Samples that begin a moment later leave the batch smaller at first, never larger.
    for row, exact in zip(file.seconds, (0.001, 0.0015, 0.0025), strict=True):
        assert 0.00099 <= row[0] <= 1.001 * exact


def test_a_batch_that_no_slot_holds_is_refused(tmp_path: Path) -> None:
    found = _profile(tmp_path, "--batch", "5", engine="emulated")
    assert found.exit_code == 2
    assert "decode.slots (4)" in found.output


def test_where_the_file_cannot_be_written_nothing_is_measured(tmp_path: Path) -> None:
    found = CliRunner().invoke(app, ["profile", str(_job(tmp_path)), "--out", "/nowhere/p.json"])
    assert found.exit_code == 2
    assert "there is no folder /nowhere" in found.output


def test_points_that_do_not_fit_the_engine_are_refused(tmp_path: Path) -> None:
    found = _profile(tmp_path, "--tokens", "64", engine="emulated")
    assert found.exit_code == 2
    assert "64 tokens a point do not fit an engine for 64" in found.output
