from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from services.learner.engine.gang import Gang, join
from tests.unit.learner.gangs import save_model


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="session")
def gang(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gang]:
    """One rank, in this process."""
    torch.set_num_threads(1)
    meeting = tmp_path_factory.mktemp("meeting") / "file"
    alone = join(0, 1, f"file://{meeting}", device="cpu", timeout=20)
    yield alone
    alone.leave()
