"""Ends the platform of a state folder: `python -m ebbtide_operator.down --state DIR`.

With its supervisor, by asking it; without (it was killed), by ending what it left. Data stay.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path

from ebbtide import lock, logs
from ebbtide.errors import EbbtideError
from ebbtide.exits import EXIT_OK, EXIT_PERMANENT, EXIT_TEMPORARY
from ebbtide.logs import Log
from ebbtide_operator import leftovers

POLL_SECONDS = 0.1


def main(arguments: Sequence[str]) -> int:
    """Parse the command line and end; returns the exit code."""
    parser = argparse.ArgumentParser(prog="ebbtide down", description=__doc__)
    parser.add_argument("--state", type=Path, required=True, help="folder of the platform")
    parser.add_argument("--timeout", type=float, default=90.0, help="seconds to wait at most")
    given = parser.parse_args(arguments)
    state = given.state.resolve()
    if not (leftovers.store_file(state).exists() or (state / "servers").exists()):
        print(f"nothing was started in {state}")  # noqa: T201 - for people
        return EXIT_OK
    log = logs.setup("warning", role="down")
    try:
        ended = asyncio.run(_end(state, log, given.timeout))
    except EbbtideError as error:
        print(f"ebbtide down: {error}", file=sys.stderr)  # noqa: T201 - for people
        return EXIT_PERMANENT
    print("stopped" if ended else "still running")  # noqa: T201 - for people
    return EXIT_OK if ended else EXIT_TEMPORARY


async def _end(state: Path, log: Log, timeout: float) -> bool:
    if (pid := lock.holder(state)) is not None:
        return await _ask(state, pid, timeout)
    async with AsyncExitStack() as rest:  # last first, each whatever befalls the one before
        rest.push_async_callback(leftovers.end_servers, state, log)
        rest.push_async_callback(leftovers.end_pods, state, log)
        rest.push_async_callback(leftovers.end_children, state, log)
    return True


async def _ask(state: Path, pid: int, timeout: float) -> bool:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGTERM)
    with suppress(TimeoutError):
        async with asyncio.timeout(timeout):
            while lock.holder(state) == pid:  # noqa: ASYNC110 - another's lock sets no event
                await asyncio.sleep(POLL_SECONDS)
    return lock.holder(state) != pid


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
