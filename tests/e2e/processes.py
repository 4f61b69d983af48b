"""What /proc says of processes."""

from __future__ import annotations

from pathlib import Path


def alive(pid: int) -> bool:
    """A process that has ended and that its parent has not asked for yet does not count."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state != "Z"
