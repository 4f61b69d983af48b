"""What judges inside the cell, played outside it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ebbtide.sandbox.inside.tester import prints


def spawn(script: list[str], **more: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, *script], **more)


def test_nobody_looks_at_an_output_that_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock looks at any moment: a look at a closed descriptor failed a right answer."""
    monkeypatch.chdir(tmp_path)
    watch: Any = SimpleNamespace(program=0, output=None, judge=int)
    test = {"stdin": "", "stdout": "1"}
    assert prints(test, "print(1)", spawn=spawn, watch=watch, most=100)
    assert watch.program
    assert watch.output is None
