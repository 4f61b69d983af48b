"""Which NVIDIA GPUs this machine shows, told from its device files: no driver is asked."""

from __future__ import annotations

import re
from pathlib import Path

_DEV = Path("/dev")
_NODE = re.compile(r"nvidia\d+")
_WSL = "dxg"
"""Under WSL this one file stands for all GPUs."""


def count(dev: Path = _DEV) -> int:
    """GPUs whose device files are in `dev`; under WSL 1 for any number of them."""
    if not dev.is_dir():
        return 0
    names = [file.name for file in dev.iterdir()]
    return sum(bool(_NODE.fullmatch(name)) for name in names) or int(_WSL in names)
