"""The one thread that touches torch: collectives must not overlap, the loop must not stop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

import torch
import torch.distributed as dist

from ebbtide.errors import Temporary

P = ParamSpec("P")
R = TypeVar("R")


class Lane:
    """Runs calls one after the other on a thread of its own. `threads`: torch's, per call."""

    def __init__(self, *, threads: int) -> None:
        self._pool = ThreadPoolExecutor(
            max_workers=1, thread_name_prefix="torch", initializer=partial(_prepare, threads)
        )

    async def run(self, function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
        """Run `function` and return its result; raises Temporary when the gang broke."""
        call = partial(function, *args, **kwargs)
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, call)
        except RuntimeError as error:
            if _from_the_gang(error):
                detail = str(error).partition("\n")[0]
                raise Temporary(f"the gang broke: {detail}") from error
            raise


def _from_the_gang(error: RuntimeError) -> bool:
    """Whether a peer died or did not answer; gloo has no error class of its own."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)


def _prepare(threads: int) -> None:
    torch.set_num_threads(threads)
    # Denormals cost two early runs a factor of five; the setting is per thread.
    torch.set_flush_denormal(True)
