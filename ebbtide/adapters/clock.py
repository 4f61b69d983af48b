"""The real clock."""

from __future__ import annotations

import asyncio
import time


class SystemClock:
    """Implements `ebbtide.ports.Clock` with the machine's clocks."""

    def now(self) -> float:
        """Monotonic seconds; comparable within this machine's boot only."""
        return time.monotonic()

    def wall(self) -> float:
        """Unix time in seconds, for people."""
        return time.time()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)
