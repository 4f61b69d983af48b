"""What the demonstration writes is what other programs read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

from ebbtide.data.sources import to_json
from ebbtide.demo import material
from ebbtide.demo.items import TASK
from ebbtide.rewards.outcomes import Answer, Worth
from ebbtide.rewards.scorers import judge, scorer
from ebbtide.spec import RuleReward


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache") / "material"
    material.write(folder, seed=5, n_lessons=64, batch=8)
    return folder


def rows(folder: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_the_model_is_read_whole_and_guesses_evenly(folder: Path) -> None:
    read: Any = AutoModelForCausalLM.from_pretrained
    model, info = read(folder / "start", output_loading_info=True, dtype=torch.float32)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
    chances = torch.softmax(model(torch.tensor([[3, 9]])).logits, dim=-1)
    assert chances.max() < 3 / 81


def test_every_question_is_short_in_tokens_and_survives_them(folder: Path) -> None:
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder / "start")
    for row in rows(folder, "held-out.jsonl"):
        ids = tokenizer(row["prompt"])["input_ids"]
        assert 6 <= len(ids) <= 96
        assert tokenizer.decode(ids) == row["prompt"] or tokenizer.unk_token_id in ids


def test_training_prompts_and_held_out_ones_are_disjoint(folder: Path) -> None:
    trained, held_out = (
        {row["prompt"] for row in rows(folder, f"{name}.jsonl")} for name in ("prompts", "held-out")
    )
    assert (len(held_out), trained & held_out) == (256, set())
    assert len(trained) > 3900


def test_short_lists_are_drawn_more_often_than_long_ones(folder: Path) -> None:
    counts = [row["metadata"]["num_words"] for row in rows(folder, "prompts.jsonl")]
    shares = [counts.count(k) / len(counts) for k in range(2, 7)]
    weights = [0.8**k for k in range(5)]
    assert shares == pytest.approx([w / sum(weights) for w in weights], abs=0.03)


def test_the_reference_answer_earns_the_reward(folder: Path) -> None:
    rule = RuleReward(
        type="reasoning_gym", name="r", extract="<answer>(.*?)</answer>", threshold=1.0
    )
    row = rows(folder, "prompts.jsonl")[0]
    answer = Answer("", f"<answer>{row['answer']}</answer>", to_json(row), TASK)
    assert judge((scorer(rule),), answer) == (Worth(1.0),)


JOB = {
    "spec": {
        "training": {"totalSteps": 1},
        "algorithm": {"updatesPerStep": 2, "batchSize": 4},
        "model": {"uri": "start"},
        "dataset": {},
    }
}


def test_material_is_written_once_per_configuration(tmp_path: Path) -> None:
    said: list[str] = []
    first = material.obtain(tmp_path, job=JOB, seed=1, say=said.append)
    again = material.obtain(tmp_path, job=JOB, seed=1, say=said.append)
    other = material.obtain(tmp_path, job=JOB, seed=2, say=said.append)
    assert first == again != other
    assert len(said) == 2
    assert len(rows(first.folder, "lessons.jsonl")) == 8


def test_a_model_is_kept_whole_or_not_at_all(tmp_path: Path) -> None:
    kept = material.Material(tmp_path)
    with pytest.raises(FileNotFoundError):
        kept.keep_model(tmp_path / "nowhere")
    assert not kept.warm
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "config.json").write_text("{}")
    (tmp_path / "policy" / "index.msgpack").write_text("ours")
    kept.keep_model(tmp_path / "policy")
    assert kept.warm
    assert [path.name for path in (tmp_path / "model").iterdir()] == ["config.json"]
