"""A state folder that is of no use is refused in words."""

from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide.exits import EXIT_REFUSED
from ebbtide.lock import LOCK_FILE
from ebbtide_operator.up import main


def test_a_folder_that_cannot_be_locked_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / LOCK_FILE).mkdir()
    assert main(["--state", str(tmp_path), "--port", "0"]) == EXIT_REFUSED
    assert "cannot be locked" in capsys.readouterr().err
