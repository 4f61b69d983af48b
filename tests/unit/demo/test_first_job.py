"""docs/first-job.md: what it lets people write fits the model that it names."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from ebbtide.demo import tokenizer
from ebbtide.spec.check import check

PAGE = (Path(__file__).parents[3] / "docs/first-job.md").read_text("utf-8")
ROWS, GRADE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)[:2]


def run_block(block: str, folder: Path) -> dict[str, Any]:
    (folder / "block.py").write_text(block)
    return runpy.run_path(str(folder / "block.py"))


@pytest.fixture
def rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    monkeypatch.chdir(tmp_path)
    run_block(ROWS, tmp_path)
    return [json.loads(line) for line in (tmp_path / "prompts.jsonl").read_text().splitlines()]


def test_the_models_tokenizer_knows_all_of_the_prompts(rows: list[dict[str, str]]) -> None:
    known = tokenizer.build()
    unknown = known.token_to_id(tokenizer.UNK)
    prompts = [known.encode(row["prompt"]).ids for row in rows]
    assert (len(prompts), [ids for ids in prompts if unknown in ids]) == (500, [])
    assert unknown in known.encode("17 + 25?").ids


def test_the_right_answer_is_worth_one_and_a_slip_less(tmp_path: Path) -> None:
    worth = run_block(GRADE, tmp_path)["short_and_right"]
    said = (
        "<answer>tree, sun</answer>",
        "<answer>tree, sum</answer>",
        "<answer>tree, suns</answer>",
    )
    found = [worth(prompt="", response=one, reference={"answer": "tree, sun"}) for one in said]
    assert found == pytest.approx([1.0, 8 / 9, 0.99])


def test_the_job_is_valid_and_has_prices() -> None:
    document = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0])
    check(document)
    assert document["spec"]["prices"] == [{"pool": "default", "perHour": 0.1}]
