"""What a policy's folder may get wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.errors import Refused
from services.learner.engine.gang import Gang
from services.learner.engine.policy import load_policy
from tests.unit.learner.gangs import save_model


@pytest.mark.parametrize("damage", [b"", b"\xff" * 64], ids=["empty", "length"])
def test_weights_that_cannot_be_read_are_refused_and_not_tried_again(
    damage: bytes, gang: Gang, tmp_path: Path
) -> None:
    (save_model(tmp_path) / "model.safetensors").write_bytes(damage)
    with pytest.raises(Refused, match="cannot be loaded"):
        load_policy(tmp_path, gang, mixed_precision=False)
