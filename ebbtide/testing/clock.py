"""Virtual time: an event loop whose clock jumps to the next timer when nothing else is to do.

`run_virtual(scenario())` runs a whole system of fakes through hours in milliseconds, and always
in the same order. `asyncio.sleep`, `asyncio.timeout` and `VirtualClock` all follow the loop's
clock. While a thread works (`asyncio.to_thread`), time stands still.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

_STUCK_SECONDS = 10.0


class VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop on virtual time, from 0 seconds. For tests on fakes alone."""

    def __init__(self) -> None:
        self._selector_of_time = _JumpingSelector()
        super().__init__(self._selector_of_time)

    def time(self) -> float:
        """Virtual seconds since the loop was made."""
        return self._selector_of_time.now

    def run_in_executor(  # type: ignore[override] # generic in the base, opaque here
        self, executor: Any, func: Any, *args: Any
    ) -> asyncio.Future[Any]:
        """Time stands still until `func` returns."""
        future = super().run_in_executor(executor, func, *args)
        self._selector_of_time.threads += 1
        future.add_done_callback(self._thread_ended)
        return future

    def _thread_ended(self, _: object) -> None:
        self._selector_of_time.threads -= 1


class _JumpingSelector(selectors.DefaultSelector):
    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.threads = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        idle = timeout is None or self.threads > 0
        ready = super().select(_STUCK_SECONDS if idle and timeout != 0 else 0)
        if not ready and timeout is None:
            raise RuntimeError("virtual time is stuck: every task waits and no timer is set")
        if not ready and timeout is not None and not self.threads:
            self.now += max(timeout, 0.0)
        return ready


class VirtualClock:
    """Implements `ebbtide.ports.Clock` on the running VirtualLoop."""

    def __init__(self, *, epoch: float = 1_700_000_000.0) -> None:
        self._epoch = epoch

    def now(self) -> float:
        """Virtual seconds."""
        return asyncio.get_running_loop().time()

    def wall(self) -> float:
        """A fixed date plus virtual seconds."""
        return self._epoch + self.now()

    async def sleep(self, seconds: float) -> None:
        """Wait; takes no real time."""
        await asyncio.sleep(seconds)

    async def advance(self, seconds: float) -> None:
        """Let everything happen that is due within `seconds`."""
        await asyncio.sleep(seconds)


def run_virtual(scenario: Coroutine[Any, Any, T]) -> T:
    """Run `scenario` to its end on a fresh VirtualLoop."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(scenario)
