from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import yaml
from rich.console import Console

from ebbtide.errors import Refused
from services.planner.simulate.__main__ import main, read_inputs
from services.planner.simulate.answers import Order, Row, make_trace
from services.planner.simulate.bar import told
from services.planner.simulate.many import run_all
from services.planner.simulate.reading import read_rows
from services.planner.simulate.results import Inputs
from services.planner.simulate.scenario import Lengths, WrongScenario, read_scenario
from tests.unit.planner.planning.samples import profile_file
from tests.unit.planner.simulate import small

SCENARIOS = sorted((Path(__file__).parents[4] / "deploy/scenarios").glob("*.yaml"))


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_each_shipped_scenario_says_what_is_known_and_what_is_assumed(path: Path) -> None:
    found = read_inputs(path).scenario
    assert found.name == path.stem
    assert found.known
    assert found.assumed


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"actors": {"gpu": "l40s", "count": 0}}, "/actors/count"),
        ({"actors": {"gpu": "l40s", "count": -1}}, "/actors/count"),
        ({"lengths": {}}, "/lengths"),
        ({"lengths": {"median": 300, "p90": 200}}, "/lengths"),
        ({"lengths": {"median": 0, "p90": 200}}, "/lengths/median"),
        ({"work": {**small.DOCUMENT["work"], "promptsPerStep": 7}}, "/work"),
        ({"actors": {"gpu": "l40s", "count": 4, "perGpuHour": 0}}, "/actors/perGpuHour"),
        ({"colour": "red"}, "/colour"),
        ({"seeds": 0}, "/seeds"),
    ],
)
def test_a_wrong_scenario_names_the_field(changes: dict[str, Any], pointer: str) -> None:
    with pytest.raises(WrongScenario) as caught:
        read_scenario({**small.DOCUMENT, **changes})
    assert [found for found, _ in caught.value.faults] == [pointer]


def test_an_unknown_policy_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = _file(tmp_path, policies=["best"])
    assert main([str(file)]) == 2
    assert "/policies/0: no policy best here, one of: static," in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("length\n", "has no rows"),
        ("length\n12\n0\n", "row 2: output length 0"),
        ("length\n-5\n", "row 1: output length -5"),
        ("length,prompt_tokens\n5,0\n", "row 1: prompt length 0"),
        ("length\n1e99\n", "is not within"),
        ("length,x\n,1\n", "row 1: length is missing"),
        ("length\nlong\n", "row 1: length 'long' is not a whole number"),
        ("length\nnan\n", "row 1: length 'nan' is not"),
        ("tokens\n5\n", "must name a column length"),
    ],
)
def test_a_wrong_trace_names_row_and_column(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, words: str
) -> None:
    (tmp_path / "trace.csv").write_text(text)
    file = _file(tmp_path, lengths={"file": "trace.csv"})
    assert main([str(file)]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{", "[]", '{"length": 3, "blocks": "a"}', '{"length": true}'])
def test_wrong_json_lines_are_refused(text: str) -> None:
    with pytest.raises(Refused, match="row 1"):
        read_rows(text, "trace.jsonl")


def test_traces_are_read_by_the_names_that_are_in_use() -> None:
    azure = read_rows("TIMESTAMP,ContextTokens,GeneratedTokens\n0,480,10\n", "a.csv")
    mooncake = read_rows('{"input_length": 600, "output_length": 6, "hash_ids": [0, 1]}', "m.jsonl")
    assert azure == [Row(480, 10)]
    assert mooncake == [Row(600, 6, (0, 1))]


def test_a_missing_file_and_a_gap_in_a_profile_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path / "no.yaml")]) == 2
    (tmp_path / "p.json").write_text('{"version": 1}')
    assert main([str(_file(tmp_path, profile="p.json"))]) == 2
    said = capsys.readouterr().err
    assert "cannot read" in said
    assert "/profile" in said


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"batches": (1, 4, 8, 64, 128, 256)}, "/seconds"),
        ({"contexts": (0, 262_144, 16_384)}, "/contexts"),
        ({"seconds": ((0.1,) * 3, *[(0.01,) * 3] * 6)}, "/seconds/1/0"),
        ({"kv_tokens": 0}, "/kv_tokens"),
    ],
)
def test_a_profile_with_gaps_or_falling_times_is_refused_by_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], field: str
) -> None:
    (tmp_path / "p.json").write_bytes(msgspec.json.encode(profile_file(**changes)))
    assert main([str(_file(tmp_path, profile="p.json"))]) == 2
    assert f"/profile: {field}" in capsys.readouterr().err


def test_a_short_file_is_used_over_again() -> None:
    work = small.scenario().work
    rows = [Row(10, 100), Row(20, 200)]
    trace = make_trace(Lengths(file="x", chance=0.0), work, rows, 0)
    assert set(np.unique(trace.lengths)) == {100, 200}
    assert len(set(trace.prompt_ids)) == work.prompts


def test_an_epoch_sees_every_prompt_once() -> None:
    case = small.case()
    work = case.site.scenario.work
    order = Order(case.trace, work, 1)
    seen = np.concatenate([np.unique(order.batch(step).prompts) for step in range(2)])
    assert sorted(seen.tolist()) == list(range(work.prompts))


def test_the_command_writes_a_page_and_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = _file(tmp_path, policies=["static", "rlhfless", "ours", "oracle"])
    assert main([str(file), "--workers", "1", "--seeds", "2", "--out", str(tmp_path / "out")]) == 0
    assert "oracle share" in capsys.readouterr().out
    page = (tmp_path / "out/report.html").read_text()
    titles = ("Step time", "Cost", "Time against cost", "Savings by cause", "Actors under ours")
    assert [title for title in titles if f"<h2>{title}</h2>" not in page] == []
    assert "http://" not in page.replace("http://www.w3.org", "")


def test_a_terminal_sees_how_far_it_is_and_a_pipe_nothing() -> None:
    for terminal, seen in ((True, "3/4"), (False, "")):
        said = io.StringIO()
        with told(4, Console(file=said, force_terminal=terminal, width=80)) as tell:
            tell(3, "savings by cause")
        assert seen in said.getvalue()
        assert bool(said.getvalue()) == terminal


def test_each_seed_is_told_when_it_has_ended() -> None:
    counts: list[int] = []
    inputs = Inputs(small.scenario(policies=["static"]))
    run_all(inputs, seeds=2, workers=1, ended=counts.append)
    assert counts == [1, 2]


def _file(folder: Path, **changes: Any) -> Path:
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump({**small.DOCUMENT, **changes}))
    return path
