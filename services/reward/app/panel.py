"""Has each component judged where it belongs: in the workers, by a server, by a reward model."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from ebbtide.rewards.outcomes import Answer, Broken, Judged, Outcome
from ebbtide.spec import Component, ModelReward, RemoteReward, RewardSpec
from services.reward.core import NoWorker, Verdict
from services.reward.engine.pool import Pool

Ask = Callable[[Answer], Awaitable[Outcome]]


class Panel:
    """Each of `models` and `servers` judges the component of its name, `pool` all the others.

    Without a pool there are no others.
    """

    def __init__(
        self,
        components: Sequence[Component],
        *,
        pool: Pool | None,
        servers: Mapping[str, Ask],
        models: Mapping[str, Pool] | None = None,
    ) -> None:
        self._components = components
        self._pool = pool
        self._models = dict(models or {})
        scorers = {name: partial(_by_model, pool) for name, pool in self._models.items()}
        self._servers: dict[str, Ask] = {**servers, **scorers}

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Mapping[str, str]]:
        """Start the workers; gives the versions of what judges. Raises what `Pool.running` does."""
        async with AsyncExitStack() as stack:
            versions: dict[str, str] = {}
            own = [self._pool] if self._pool else []
            for pool in (*self._models.values(), *own):
                versions |= await stack.enter_async_context(pool.running())
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
    elsewhere = (RemoteReward, ModelReward)
    own = tuple(c for c in reward.components if not isinstance(c, elsewhere))
    return reward.model_copy(update={"components": own}) if own else None


async def _by_model(pool: Pool, answer: Answer) -> Outcome:
    """A model's worker that dies or hangs is infrastructure: no answer can do that to it."""
    match await pool.score(answer):
        case Judged(outcomes):
            return outcomes[0]
        case NoWorker(why):
            return Broken("NoWorker", why)
        case ended:
            return Broken(
                "ModelWorker", f"the reward model's worker {type(ended).__name__.lower()}"
            )


async def _timed(ask: Ask, answer: Answer) -> tuple[Outcome, float]:
    start = time.perf_counter()
    return await ask(answer), time.perf_counter() - start
