"""One running stack per module, and the tiny model that its jobs train."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.stack import Stack, running
from tests.e2e.jobs import Material
from tests.e2e.tiny import write_model, write_prompts


@pytest.fixture(scope="session")
def material(tmp_path_factory: pytest.TempPathFactory) -> Material:
    folder = tmp_path_factory.mktemp("material")
    return Material(write_model(folder / "model"), write_prompts(folder / "prompts.jsonl"))


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    state: Path = tmp_path_factory.mktemp("stack")
    with running(state) as found:
        yield found
