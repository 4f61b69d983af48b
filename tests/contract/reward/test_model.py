"""A reward model in a worker of its own: its scores are those of transformers, whatever the batch."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import BertConfig, Qwen2Config
from transformers.models.bert import BertForSequenceClassification
from transformers.models.qwen2 import Qwen2ForSequenceClassification

from ebbtide import logs
from ebbtide.demo import tokenizer as demo
from ebbtide.engines.reward_model import RewardModel, batches, identity
from ebbtide.errors import Refused
from ebbtide.rewards.outcomes import Answer, Judged, Outcome, Unusable, Worth
from ebbtide.spec import ModelReward, RewardSpec
from services.reward.app.panel import Panel
from services.reward.engine.frames import Setup
from services.reward.engine.pool import Pool, PoolSettings
from services.reward.engine.process import MODEL_WORKER

TEXTS = [("ab", "c" * n) for n in (1, 9, 3, 14, 2)]
EOS = 1
QWEN2: Any = Qwen2Config  # their constructors take more than their types say
BERT: Any = BertConfig
SIZES = {"vocab_size": 90, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}


def saved(model: Any, folder: Path) -> Any:
    model.eval().save_pretrained(folder)
    demo.build().save(str(folder / "tokenizer.json"))
    return model


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("model")
    torch.manual_seed(0)
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    # The padding's id is EOS, as with many models: transformers itself then reads another token.
    config = QWEN2(**SIZES, **heads, num_labels=1, eos_token_id=EOS, pad_token_id=EOS)
    saved(Qwen2ForSequenceClassification(config), made)
    return made


def alone(folder: Path, text: str) -> float:
    """By transformers, in a row of its own and with a padding that is no token."""
    model: Any = Qwen2ForSequenceClassification.from_pretrained(folder)
    model.config.pad_token_id = -1
    ids = [*demo.build().encode(text).ids, EOS]
    with torch.no_grad():
        return float(model(torch.tensor([ids])).logits[0, 0])


def test_a_batch_scores_like_each_row_alone(folder: Path) -> None:
    model = RewardModel(folder, device="cpu", batch_tokens=24, max_tokens=14)
    found = model.scores(TEXTS)
    wanted = [None if len(a) > 11 else alone(folder, p + a) for p, a in TEXTS]
    assert found == [w if w is None else pytest.approx(w, abs=1e-5) for w in wanted]


def test_an_encoder_is_read_with_a_mask(tmp_path: Path) -> None:
    config = BERT(**SIZES, num_attention_heads=4, num_labels=1)
    model = saved(BertForSequenceClassification(config), tmp_path)
    found = RewardModel(tmp_path, device="cpu").scores(TEXTS)
    with torch.no_grad():
        rows = [torch.tensor([demo.build().encode(p + a).ids]) for p, a in TEXTS]
        assert found == pytest.approx([float(model(row).logits[0, 0]) for row in rows], abs=1e-5)


def test_batches_hold_what_fits_with_padding() -> None:
    assert batches([3, 9, 2, 8], 16) == [[2, 0], [3], [1]]
    assert batches([40], 16) == [[0]]


def test_a_classifier_with_two_outputs_is_refused(tmp_path: Path) -> None:
    config = BERT(**SIZES, num_attention_heads=4, num_labels=2)
    saved(BertForSequenceClassification(config), tmp_path)
    with pytest.raises(Refused, match="has 2 outputs"):
        RewardModel(tmp_path, device="cpu")


@pytest.fixture
async def panel(folder: Path) -> AsyncIterator[Panel]:
    component = ModelReward(type="model", name="m", uri=str(folder), device="cpu", max_tokens=14)
    spec = RewardSpec(components=(component,))
    settings = PoolSettings(workers=1, limit_seconds=60, module=MODEL_WORKER)
    log = logs.setup("info", stream=io.StringIO())
    pool = Pool(setup=Setup(spec.model_dump_json().encode(), 0, 0), settings=settings, log=log)
    made = Panel(spec.components, pool=None, servers={}, models={"m": pool})
    async with made.running() as versions:
        assert versions == {"m": identity(folder)}
        yield made


async def test_answers_are_scored_in_a_process_of_their_own(panel: Panel, folder: Path) -> None:
    async def outcome(text: tuple[str, str]) -> Outcome:
        verdict = await panel.score(Answer(*text, b"{}", "t"))
        assert isinstance(verdict, Judged)
        return verdict.outcomes[0]

    found = await asyncio.gather(*(outcome(text) for text in TEXTS))
    assert found[3] == Unusable("the answer with its prompt has over 14 tokens")
    assert isinstance(found[1], Worth)
    assert found[1].value == pytest.approx(alone(folder, "ab" + "c" * 9), abs=1e-5)
