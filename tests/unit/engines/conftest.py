"""One tiny published model for all tests of this folder."""

from __future__ import annotations

import pytest

from ebbtide.testing.tiny_models import Tiny, publish_tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    return publish_tiny(tmp_path_factory.mktemp("tiny"))
