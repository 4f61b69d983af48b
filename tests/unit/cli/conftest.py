from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def owner(tmp_path: Path) -> Iterator[int]:
    """Pid of a process that holds the state folder, as a supervisor does."""
    code = (
        "import sys; from pathlib import Path; from ebbtide import lock\n"
        "with lock.hold(Path(sys.argv[1])): print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
        process.kill()
