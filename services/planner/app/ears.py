"""Hears everything that the core must know: beats, facts, pods, time."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import msgspec

from ebbtide import labels, streams
from ebbtide.errors import Conflict, NotFound, Temporary
from ebbtide.logs import Log
from ebbtide.objects import unix_time
from ebbtide.ports import Change, Cluster, Resource
from ebbtide.wire import Beat, Fact, Fence, PlannerBeat, encode
from services.planner.app.errands import Errands
from services.planner.app.world import World
from services.planner.core.events import (
    OUTLIVING,
    Event,
    Facts,
    Heard,
    PodsGone,
    PodStarted,
    Tick,
)

_FETCH = 512
_FETCH_SECONDS = 1.0
_TRIM_SECONDS = 10.0
_WATCH_PAUSE = 1.0
_BEATS = msgspec.msgpack.Decoder(Beat)
_FACTS = msgspec.msgpack.Decoder(Fact)


async def say_alive(world: World, fence: Fence) -> None:
    """Tell actors that they have a planner, until cancelled."""
    subject = streams.planner(world.settings.job_uid)
    while True:
        await world.bus.beat(subject, encode(PlannerBeat(fence)))
        await world.clock.sleep(world.settings.beat_seconds)


class Ears:
    """Each `hear_...` runs until it is cancelled."""

    def __init__(
        self,
        *,
        world: World,
        fence: Fence,
        errands: Errands,
        post: Callable[[Event], None],
        log: Log,
    ) -> None:
        self._world, self._fence, self._errands = world, fence, errands
        self._post, self._log = post, log
        self._tokens = itertools.count(1)
        self._started: set[str] = set()

    async def hear_beats(self) -> None:
        """Heartbeats of every role of the job."""
        subject = streams.beats(self._world.settings.job_uid)
        async with self._world.bus.beats(subject) as beats:
            async for data in beats:
                try:
                    beat = _BEATS.decode(data)
                except msgspec.DecodeError as error:
                    self._log.warning("unreadable beat", why=str(error))
                    continue
                self._post(Heard(beat))

    async def hear_facts(self) -> None:
        """Facts of all attempts; each stays with the broker until the core has it acknowledged."""
        uid = self._world.settings.job_uid
        consumer = await self._world.bus.consume(
            streams.FACTS,
            streams.holder(uid, self._fence.planner_epoch),
            streams.facts(uid),
            replaces=streams.holders(uid),
        )
        self._errands.consumer = consumer
        trim_at = self._world.clock.now() + _TRIM_SECONDS
        while True:
            arrived: list[tuple[int, Fact]] = []
            for delivery in await consumer.fetch(_FETCH, _FETCH_SECONDS):
                try:
                    fact = _FACTS.decode(delivery.data)
                except msgspec.DecodeError as error:
                    self._log.warning("unreadable fact dropped", why=str(error))
                    await delivery.ack()
                    continue
                token = next(self._tokens)
                self._errands.deliveries[token] = delivery
                arrived.append((token, fact))
            if arrived:
                self._post(Facts(tuple(arrived)))
            if self._world.clock.now() >= trim_at:
                trim_at = self._world.clock.now() + _TRIM_SECONDS
                await consumer.trim()

    async def hear_time(self) -> None:
        """Ticks, which tell whether the broker is there."""
        while True:
            await self._world.clock.sleep(self._world.settings.tick_seconds)
            self._post(Tick(self._world.bus.connected))

    async def hear_pods(self, cluster: Cluster) -> None:
        """Pods that start up, for cost; those that outlive planners and have ended: no lease need lapse."""
        namespace = self._world.settings.namespace
        while True:
            try:
                found, since = await cluster.list("Pod", namespace)
                for pod in found:
                    self._look_at_start(pod)
                async for change in cluster.watch(["Pod"], namespace, since):
                    self._look_at_start(change.resource)
                    self._look_at(change)
            except (Temporary, Conflict, NotFound) as error:
                self._log.info("watching pods anew", why=str(error))
            await self._world.clock.sleep(_WATCH_PAUSE)

    def _look_at_start(self, pod: Resource) -> None:
        """Tell once when this planner's own pod, a rank of its attempt or one that outlives both runs."""
        own, settings = pod.metadata.labels, self._world.settings
        started = pod.status.get("startedAt") or pod.status.get("startTime")
        ours = own.get(labels.JOB_UID) == settings.job_uid
        known = _is_over(pod) or pod.metadata.name in self._started
        if not ours or not started or known:
            return
        since = self._world.clock.now() - max(0.0, self._world.clock.wall() - unix_time(started))
        if pod.metadata.name == settings.pod:
            self._started.add(pod.metadata.name)
            self._post(PodStarted("planner", settings.pod, since))
        elif (role := own.get(labels.ROLE, "")) in OUTLIVING:
            self._started.add(pod.metadata.name)
            self._post(PodStarted(role, pod.metadata.name, since, _place(pod)))
        elif _is_rank(pod, settings.attempt):
            self._started.add(pod.metadata.name)
            self._post(PodStarted("learner", own.get(labels.INDEX, ""), since, _place(pod)))

    def _look_at(self, change: Change) -> None:
        pod = change.resource
        own = pod.metadata.labels
        ours = own.get(labels.JOB_UID) == self._world.settings.job_uid
        over = change.type == "DELETED" or _is_over(pod)
        if ours and over and own.get(labels.ROLE) in OUTLIVING:
            self._post(PodsGone((pod.metadata.name,)))


def _is_over(pod: Resource) -> bool:
    return pod.status.get("phase") in ("Succeeded", "Failed")


def _place(pod: Resource) -> tuple[tuple[str, str], ...]:
    """Its labels, which may tell domain and zone, and its node."""
    node = pod.spec.get("nodeName")
    return (*pod.metadata.labels.items(), *([(labels.HOSTNAME, str(node))] if node else []))


def _is_rank(pod: Resource, attempt: int) -> bool:
    own = pod.metadata.labels
    return own.get(labels.ROLE) == "learner" and own.get(labels.ATTEMPT) == str(attempt)
