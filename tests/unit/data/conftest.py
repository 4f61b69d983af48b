from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from transformers import PreTrainedTokenizerFast

from ebbtide.data.sources import RawRow
from ebbtide.demo import tokenizer as demo


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder with everything but weights."""
    folder = tmp_path_factory.mktemp("model")
    demo.save(folder)
    (folder / "config.json").write_text(json.dumps({"vocab_size": 81}))
    return folder


@pytest.fixture(scope="session")
def tokenizer(folder: Path) -> Any:
    return PreTrainedTokenizerFast.from_pretrained(str(folder))


def row(**fields: Any) -> RawRow:
    return RawRow(place="rows.jsonl:1", fields=fields, source="rows.jsonl", task="t")


@pytest.fixture
def make_row() -> Any:
    return row
