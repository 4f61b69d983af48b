"""A log that cannot be written loses lines, and nothing else."""

import errno
import io
import logging

from ebbtide.logs import setup


class Full(io.StringIO):
    """A stream to a full disk."""

    def write(self, _: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_ends_nobody_who_logs() -> None:
    root = logging.getLogger()
    before = (list(root.handlers), root.level)
    try:
        setup("info", stream=Full()).warning("process ended")
        logging.getLogger("x").warning("process ended")
    finally:
        root.handlers[:], root.level = before
