"""What the model's own files may get wrong where the tokenizer is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.data.tokenizers import vocabulary
from ebbtide.errors import Refused
from ebbtide.spec import ModelSpec


def test_a_config_that_is_nested_too_deeply_is_refused(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"a":' * 100_000)
    with pytest.raises(Refused, match="nested too deeply") as refused:
        vocabulary(ModelSpec(uri=str(tmp_path)), None)
    assert refused.value.field == "/spec/model/uri"
