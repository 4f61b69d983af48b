"""The preparing process as a service starts it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ebbtide.adapters.blobs import open_blobs
from ebbtide.data import launch
from ebbtide.data.outcome import Prepared
from ebbtide.demo import tokenizer as demo
from ebbtide.errors import DeadlineExceeded, Permanent, Refused
from ebbtide.wire import DatasetIndex, decode


@pytest.fixture
def spec(tmp_path: Path) -> dict[str, Any]:
    demo.save(tmp_path / "model")
    (tmp_path / "rows.jsonl").write_text('{"prompt": "ab", "answer": "ba"}\n')
    rows = {"type": "jsonl", "uri": str(tmp_path / "rows.jsonl")}
    return {
        "model": {"uri": str(tmp_path / "model")},
        "dataset": {"train": rows, "eval": rows},
        "algorithm": {"type": "grpo"},
        "training": {"totalSteps": 1},
        "reward": {"components": [{"type": "exact", "name": "right"}]},
    }


async def run(spec: Any, folder: Path, said: list[str], seconds: float = 60) -> Prepared:
    blobs_url = (folder / "blobs").as_uri()
    text = json.dumps(spec).encode()
    return await launch.prepare(text, blobs_url=blobs_url, timeout=seconds, said=said.append)


async def test_it_prepares_both_parts_and_tells_how_far_it_is(
    spec: dict[str, Any], tmp_path: Path
) -> None:
    said: list[str] = []
    found = await run(spec, tmp_path, said)
    blobs = open_blobs((tmp_path / "blobs").as_uri())
    assert decode(await blobs.fetch(found.train), DatasetIndex).n_rows == 1
    assert found.eval == found.train
    assert "train: 1 rows, 0 left out as too long" in said


@pytest.mark.parametrize(
    ("part", "value", "field"),
    [
        ("dataset", {"train": {"type": "jsonl", "uri": "/nowhere"}}, "/spec/dataset/train/uri"),
        ("mode", "async", "/spec/mode"),
    ],
)
async def test_bad_input_comes_back_as_a_refusal(
    spec: dict[str, Any], tmp_path: Path, part: str, value: Any, field: str
) -> None:
    with pytest.raises(Refused) as caught:
        await run(spec | {part: value}, tmp_path, [])
    assert caught.value.field == field


async def test_a_row_nested_too_deeply_is_bad_data(spec: dict[str, Any], tmp_path: Path) -> None:
    with (tmp_path / "rows.jsonl").open("a") as rows:
        rows.write('{"prompt":"ab","x":' + "[" * 100_000 + "]" * 100_000 + "}\n")
    with pytest.raises(Refused, match=r"rows\.jsonl:2 is nested too deeply") as caught:
        await run(spec, tmp_path, [])
    assert caught.value.field == "/spec/dataset/train/uri"


async def test_an_unexpected_death_is_told_in_one_line(
    spec: dict[str, Any], tmp_path: Path
) -> None:
    (tmp_path / "model" / "generation_config.json").mkdir()  # nobody thought of a folder there
    said: list[str] = []
    with pytest.raises(Permanent) as caught:
        await run(spec, tmp_path, said)
    told = str(caught.value)
    assert told.startswith("preparing the data failed with status 1: IsADirectoryError")
    assert "\n" not in told
    [trace] = [line for line in said if "Traceback" in line]
    assert trace.startswith("trace: ")
    assert not any(line.lstrip().startswith("File ") for line in said)


async def test_it_is_ended_at_its_deadline(spec: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(DeadlineExceeded, match="preparing the data took more than 0 s"):
        await run(spec, tmp_path, [], seconds=0.05)
