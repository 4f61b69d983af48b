"""What the supervisor shows of itself, in up.json."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ebbtide.endpoint import UP_FILE, Up, write_up
from ebbtide.logs import Log


class Display:
    """up.json of a state folder; it may lag behind, for a full disk must end nothing."""

    def __init__(
        self, folder: Path, *, log: Log, write: Callable[[Path, Up], None] = write_up
    ) -> None:
        self._folder, self._log, self._write = folder, log, write
        self._shown: Up | None = None
        self._failed = False

    def show(self, up: Up) -> None:
        """Write it unless it stands there already; what cannot be written is logged once."""
        if up == self._shown:
            return
        try:
            self._write(self._folder, up)
        except OSError as error:
            if not self._failed:
                file = str(self._folder / UP_FILE)
                self._log.warning("cannot write; trying again", file=file, why=str(error))
            self._failed = True
        else:
            self._shown, self._failed = up, False
