"""A scorer put together from its parts, and what it tells the world each second."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from ebbtide import streams
from ebbtide.errors import Refused
from ebbtide.ports import Blobs, Bus, Clock
from ebbtide.rewards.environments import FIELD
from ebbtide.runtime import Process
from ebbtide.spec import EnvironmentSpec, ModelReward, RemoteReward, RewardSpec, RLHFJobSpec
from ebbtide.spec.reading import read_spec
from ebbtide.wire import RewardBeat, encode
from services.reward import core
from services.reward.app.episodes import Episodes
from services.reward.app.intake import Intake
from services.reward.app.library import Library, Words, words
from services.reward.app.metrics import RewardMetrics
from services.reward.app.outlet import Outlet
from services.reward.app.panel import Panel, local_part
from services.reward.app.scoring import Scoring
from services.reward.engine.doors import networks
from services.reward.engine.frames import Setup
from services.reward.engine.pool import Pool, PoolSettings
from services.reward.engine.process import ENVIRONMENT_WORKER, MODEL_WORKER
from services.reward.engine.remote import Remote, connected, keys_of
from services.reward.settings import RewardSettings

_BEAT_SECONDS = 1.0
_LOAD_SECONDS = 600.0
"""A reward model may have many gigabytes to read."""
_DRAIN_SHARE = 0.6
"""Of the grace period; the rest is for handing back and ending workers."""


class World(msgspec.Struct, frozen=True):
    """What a scorer works with."""

    settings: RewardSettings
    blobs: Blobs
    bus: Bus
    clock: Clock


async def live(world: World, process: Process) -> None:
    """Score until drained. Raises Refused if the job's components cannot be had."""
    spec, reward = _read(world.settings.spec)
    async with AsyncExitStack() as stack:
        panel, versions = await stack.enter_async_context(_panel(world.settings, reward, process))
        environment = _environment(world.settings, spec.environment, process)
        if environment is not None:
            versions = {**versions, **await stack.enter_async_context(environment.running())}
        station = Station(
            world=world,
            process=process,
            spec=spec,
            words=words(spec.model),
            panel=panel,
            environment=environment,
            versions=versions,
        )
        await station.run()


class Station:
    """The parts of one scorer, wired."""

    def __init__(
        self,
        *,
        world: World,
        process: Process,
        spec: RLHFJobSpec,
        words: Words,
        panel: Panel,
        environment: Pool | None,
        versions: Mapping[str, str],
    ) -> None:
        self._world = world
        self._process = process
        settings, log = world.settings, process.log
        reward = spec.reward
        assert reward is not None
        metrics = RewardMetrics(registry=process.registry, components=reward.components)
        self._breaker = core.Breaker(
            limit=reward.breaker_errors, rest=settings.breaker_rest_seconds
        )
        self._outlet = Outlet(
            bus=world.bus, clock=world.clock, log=log, instance=settings.pod, spans=process.spans
        )
        self._scoring = Scoring(
            spec=reward,
            library=_library(world.blobs, words, spec.environment),
            episodes=_episodes(spec, environment, world.blobs, words, metrics),
            judge=panel.score,
            breaker=self._breaker,
            clock=world.clock,
            metrics=metrics,
            log=log,
            scorer=settings.pod,
            scorer_digest=core.scorer_digest(reward, versions),
        )
        self._intake = Intake(
            bus=world.bus,
            scoring=self._scoring,
            outlet=self._outlet,
            breaker=self._breaker,
            clock=world.clock,
            metrics=metrics,
            log=log,
            job_uid=settings.job_uid,
            capacity=settings.capacity,
        )

    async def run(self) -> None:
        """Work until the process drains."""
        process, bus = self._process, self._world.bus
        process.spawn(self._outlet.run(), name="outlet")
        process.spawn(self._beat(), name="beat")
        process.health.require_ready("broker", lambda: "" if bus.connected else "broker is lost")
        process.health.ready = True
        seconds = _DRAIN_SHARE * self._world.settings.grace_seconds
        await self._intake.run(process.drain, drain_seconds=seconds)

    async def _beat(self) -> None:
        pod = self._world.settings.pod
        subject = streams.beat(self._world.settings.job_uid, "reward", pod)
        while True:
            beat = RewardBeat(
                instance=pod,
                busy=self._intake.busy,
                scored=self._scoring.scored,
                errors=self._scoring.errors,
                breaker_open=self._breaker.open,
                scorer_digest=self._scoring.scorer_digest,
            )
            await self._world.bus.beat(subject, encode(beat))
            await self._world.clock.sleep(_BEAT_SECONDS)


def _read(text: str) -> tuple[RLHFJobSpec, RewardSpec]:
    spec = read_spec(text)
    if spec.reward is None:
        raise Refused("this job has nothing to score", field="/spec/reward")
    return spec, spec.reward


@asynccontextmanager
async def _panel(
    settings: RewardSettings, reward: RewardSpec, process: Process
) -> AsyncIterator[tuple[Panel, Mapping[str, str]]]:
    """Workers started and servers known. Raises Refused if either cannot be had."""
    allowed = networks(settings.private_networks)
    keys = keys_of(settings.keys.get_secret_value())
    own = local_part(reward)
    pool = _pool(settings, own, process) if own else None
    async with connected(allowed=allowed, connections=settings.remote_connections) as http:
        servers = {
            component.name: Remote(component, http=http, keys=keys).score
            for component in reward.components
            if isinstance(component, RemoteReward)
        }
        models = {
            component.name: _model_pool(settings, reward, component, process)
            for component in reward.components
            if isinstance(component, ModelReward)
        }
        panel = Panel(reward.components, pool=pool, servers=servers, models=models)
        async with panel.running() as versions:
            yield panel, versions


def _library(blobs: Blobs, words: Words, spec: EnvironmentSpec | None) -> Library:
    return Library(blobs=blobs, words=words, role=spec.role if spec else "")


def _episodes(
    spec: RLHFJobSpec, pool: Pool | None, blobs: Blobs, words: Words, metrics: RewardMetrics
) -> Episodes | None:
    if spec.environment is None or spec.reward is None or pool is None:
        return None
    return Episodes(
        spec=spec.environment,
        ask=pool.score,
        blobs=blobs,
        words=words,
        limit=spec.training.max_response_tokens,
        deaths=core.Deaths(limit=spec.reward.breaker_errors, what="environment", field=FIELD),
        metrics=metrics,
    )


def _environment(
    settings: RewardSettings, spec: EnvironmentSpec | None, process: Process
) -> Pool | None:
    """Workers that have the environment and nothing else, if the job has one."""
    if spec is None:
        return None
    setup = Setup(
        reward=spec.model_dump_json().encode(),
        memory_bytes=settings.worker_memory_mib << 20,
        cpu_seconds=spec.timeout_seconds,
    )
    limits = PoolSettings(
        workers=spec.workers,
        limit_seconds=spec.timeout_seconds,
        start_seconds=settings.worker_start_seconds,
        module=ENVIRONMENT_WORKER,
        parts=1,
    )
    return Pool(setup=setup, settings=limits, log=process.log)


def _model_pool(
    settings: RewardSettings, reward: RewardSpec, component: ModelReward, process: Process
) -> Pool:
    """One worker that holds the component's model, and reads many answers at a time."""
    alone = reward.model_copy(update={"components": (component,)})
    setup = Setup(reward=alone.model_dump_json().encode(), memory_bytes=0, cpu_seconds=0)
    limits = PoolSettings(
        workers=1,
        limit_seconds=component.timeout_seconds,
        start_seconds=max(settings.worker_start_seconds, _LOAD_SECONDS),
        module=MODEL_WORKER,
    )
    return Pool(setup=setup, settings=limits, log=process.log)


def _pool(settings: RewardSettings, reward: RewardSpec, process: Process) -> Pool:
    setup = Setup(
        reward=reward.model_dump_json().encode(),
        memory_bytes=settings.worker_memory_mib << 20,
        cpu_seconds=reward.timeout_seconds,
        sandbox=settings.sandbox,
    )
    limits = PoolSettings(
        workers=reward.workers,
        limit_seconds=reward.timeout_seconds,
        start_seconds=settings.worker_start_seconds,
    )
    return Pool(setup=setup, settings=limits, log=process.log)
