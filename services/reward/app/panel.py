"""Has each component judged where it belongs: in the workers, or by a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from ebbtide.rewards.outcomes import Answer, Judged, Outcome
from ebbtide.spec import Component, RemoteReward, RewardSpec
from services.reward.core import Verdict
from services.reward.engine.pool import Pool

Ask = Callable[[Answer], Awaitable[Outcome]]


class Panel:
    """`pool` judges the components that no `servers` (by name) does; None: there are none."""

    def __init__(
        self, components: Sequence[Component], *, pool: Pool | None, servers: Mapping[str, Ask]
    ) -> None:
        self._components = components
        self._pool = pool
        self._servers = servers

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Mapping[str, str]]:
        """Start the workers; gives the versions of what judges. Raises what `Pool.running` does."""
        if self._pool is None:
            yield {}
            return
        async with self._pool.running() as versions:
            yield versions

    async def score(self, answer: Answer) -> Verdict:
        """One outcome per component, in the job's order; the workers' ending goes before it."""
        names = list(self._servers)
        async with asyncio.TaskGroup() as group:
            here = group.create_task(self._here(answer))
            tasks = [group.create_task(_timed(self._servers[name], answer)) for name in names]
        verdict = here.result()
        if not isinstance(verdict, Judged):
            return verdict
        told = dict(zip(names, (task.result() for task in tasks), strict=True))
        local = iter(zip(verdict.outcomes, verdict.seconds, strict=True))
        found = [told[c.name] if c.name in told else next(local) for c in self._components]
        return Judged(tuple(o for o, _ in found), tuple(s for _, s in found))

    async def _here(self, answer: Answer) -> Verdict:
        return Judged((), ()) if self._pool is None else await self._pool.score(answer)


def local_part(reward: RewardSpec) -> RewardSpec | None:
    """The same with the components that workers judge alone; None if there are none."""
    own = tuple(c for c in reward.components if not isinstance(c, RemoteReward))
    return reward.model_copy(update={"components": own}) if own else None


async def _timed(ask: Ask, answer: Answer) -> tuple[Outcome, float]:
    start = time.perf_counter()
    return await ask(answer), time.perf_counter() - start
