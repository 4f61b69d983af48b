"""One planner's life: take over, find the data, run the core until the job ends or it must go."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from ebbtide.errors import Conflict, NotFound, Refused, Temporary
from ebbtide.ledger import Ledger
from ebbtide.profiles import ProfileFile
from ebbtide.runtime import Process
from ebbtide.wire import Fence
from services.planner.app.data import find_data
from services.planner.app.ears import Ears, say_alive
from services.planner.app.errands import Errands
from services.planner.app.given import find_given
from services.planner.app.metrics import PlannerMetrics
from services.planner.app.notice import Notice
from services.planner.app.opening import take_over
from services.planner.app.performer import Performer
from services.planner.app.profiles import find_profile
from services.planner.app.world import World
from services.planner.core.config import Data, Given, Patience, configure
from services.planner.core.effects import ScalePool
from services.planner.core.events import Event, Suspend
from services.planner.core.planner import Planner

_SETTLE_SECONDS = 5.0
_MARGIN_SECONDS = 3.0
_POLL_SECONDS = 0.05


async def live(world: World, process: Process) -> None:
    """Run until the job has an outcome, or the process drains. Raises Fenced when superseded."""
    log, settings = process.log, world.settings
    ledger, book = await take_over(world)
    fence = Fence(ledger.epoch.attempt, ledger.epoch.n)
    log.info("took over", epoch=fence.planner_epoch, step=book.next_step, parent=book.parent)
    process.spawn(say_alive(world, fence), name="alive")
    notice = Notice(world=world, fence=fence, log=log)
    found = await wait_for_data(world, process, notice, ledger)
    if found is None:
        return
    data, given = found
    profile = await read_profile(world, notice, ledger)
    patience = Patience(lease=settings.lease_seconds, join=settings.join_seconds)
    config = configure(
        world.spec,
        job_uid=settings.job_uid,
        data=data,
        patience=patience,
        profile=profile,
        given=given,
    )
    now = world.clock.now()
    planner = Planner(config=config, data=data, book=book, pod=settings.pod, now=now)
    metrics = PlannerMetrics(process.registry)
    events: asyncio.Queue[Event] = asyncio.Queue()
    errands = Errands(
        world=world, fence=fence, post=events.put_nowait, log=log, spans=process.spans
    )
    performer = Performer(
        ledger=ledger,
        errands=errands,
        clock=world.clock,
        gather=settings.gather_seconds,
        metrics=metrics,
        log=log,
    )
    shell = Shell(
        world=world,
        process=process,
        planner=planner,
        performer=performer,
        metrics=metrics,
        errands=errands,
        events=events,
    )
    ears = Ears(world=world, fence=fence, errands=errands, post=events.put_nowait, log=log)
    shell.spawn(ears, notice)
    process.health.ready = True
    await shell.end(notice)


async def wait_for_data(
    world: World, process: Process, notice: Notice, ledger: Ledger
) -> tuple[Data, Given | None] | None:
    """The data, and the policy of a job that never learns; None if the process must go before.

    What is refused ends the job, unless `ledger` has another owner by now (raises Fenced).
    """
    with suppress(Temporary, Conflict, NotFound):  # it is news, and no more
        await notice.preparing()
    finding = asyncio.ensure_future(_find(world, process))
    leaving = asyncio.ensure_future(process.drain.wait())
    ends: set[asyncio.Future[Any]] = {finding, leaving}
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        return finding.result() if finding.done() else None
    except Refused as refused:
        await ledger.append(())  # only the ledger's owner may end the job
        await notice.refuse(f"{refused.field}: {refused.detail}".strip(": "))
        raise
    finally:
        leaving.cancel()
        finding.cancel()
        await asyncio.wait({finding})  # it ends its child process before we go


async def _find(world: World, process: Process) -> tuple[Data, Given | None]:
    data = await find_data(world, process.log)
    uid, log = world.settings.job_uid, process.log
    return data, await find_given(world.spec, uid=uid, blobs=world.blobs, log=log)


async def read_profile(world: World, notice: Notice, ledger: Ledger) -> ProfileFile | None:
    """The actors' profile; one that is refused ends the job, as data do."""
    try:
        return find_profile(world.spec)
    except Refused as refused:
        await ledger.append(())
        await notice.refuse(f"{refused.field}: {refused.detail}")
        raise


class Shell:
    """The loop: an event, a step of the core, its effects to the performer."""

    def __init__(
        self,
        *,
        world: World,
        process: Process,
        planner: Planner,
        performer: Performer,
        metrics: PlannerMetrics,
        errands: Errands,
        events: asyncio.Queue[Event],
    ) -> None:
        self._world, self._process, self._planner = world, process, planner
        self._performer, self._metrics, self._events = performer, metrics, events
        self._errands = errands
        self._began = world.clock.now()

    def spawn(self, ears: Ears, notice: Notice) -> None:
        """Begin everything that runs beside; what raises, ends the process."""
        works = {
            "core": self._think(),
            "effects": self._performer.run(),
            "beats": ears.hear_beats(),
            "facts": ears.hear_facts(),
            "time": ears.hear_time(),
            "metrics": self._count(),
        }
        if self._world.cluster is not None:
            works["pods"] = ears.hear_pods(self._world.cluster)
            works["status"] = notice.keep(self._planner)
        for name, work in works.items():
            self._process.spawn(work, name=name)

    async def end(self, notice: Notice) -> None:
        """Wait for the outcome, or for the word to go; leave everything durable."""
        finished = self._performer.finished
        drained = asyncio.ensure_future(self._process.drain.wait())
        ends: set[asyncio.Future[Any]] = {finished, drained}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        finally:
            drained.cancel()
        if not finished.done():
            await self._suspend()
        # Reports and settlements first: after the outcome the operator frees everything.
        await self._performer.settle(_SETTLE_SECONDS)
        if finished.done():
            await notice.last(self._planner)
            outcome = finished.result()
            self._process.log.info(
                "job ended", outcome=outcome.outcome, reason=outcome.reason, why=outcome.message
            )

    async def _suspend(self) -> None:
        """Save what the job wants saved, as long as there is time."""
        self._events.put_nowait(Suspend())
        until = self._world.clock.now() + self._world.settings.grace_seconds - _MARGIN_SECONDS
        while self._world.clock.now() < until and not self._performer.finished.done():
            await self._world.clock.sleep(_POLL_SECONDS)
            if self._planner.suspended and self._events.empty() and self._performer.idle:
                break
        self._process.log.info("leaving", suspended=self._planner.suspended)

    async def _think(self) -> None:
        clock = self._world.clock
        while True:
            event = await self._events.get()
            began = clock.now()
            effects = self._planner.step(event, began)
            self._process.place.step = self._planner.book.next_step
            self._performer.add(effects, urgent=self._planner.hurried)
            for effect in effects:
                if isinstance(effect, ScalePool):
                    self._metrics.wanted(effect.replicas)
            self._metrics.stepped(type(event).__name__, clock.now() - began)

    async def _count(self) -> None:
        self._metrics.wanted(self._world.spec.decode.replicas)
        while True:
            policy, since = self._planner.policy_status(), self._planner.progress_at
            self._metrics.stands(
                self._planner.standing(),
                policy=policy.version if policy else -1,
                unacknowledged=len(self._errands.deliveries),
                idle_seconds=self._world.clock.now() - (self._began if since is None else since),
            )
            await self._world.clock.sleep(self._world.settings.status_seconds)
