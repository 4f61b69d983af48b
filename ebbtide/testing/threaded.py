"""A reward whose module starts a thread when it is imported, as some clients of servers do."""

from __future__ import annotations

import threading

_KEEPER = threading.Thread(target=threading.Event().wait, daemon=True)
_KEEPER.start()


def alive(**_: object) -> float:
    """1 if the module's thread runs in this process: none outlives a fork."""
    return float(_KEEPER.is_alive())
