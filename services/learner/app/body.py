"""A rank's life: meet the others, restore or begin, publish, then obey until the end."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ebbtide.data.sources import local_path
from ebbtide.ports import Blobs, Bus, Clock
from ebbtide.runtime import Process
from ebbtide.spec import RewardModelSpec, RLHFJobSpec
from ebbtide.tracing import StepTrace
from ebbtide.wire import Learn, Learned, LearnerCommand, Ref, Refusal, decode, encode
from services.learner.app.front import Front
from services.learner.app.janitor import Janitor
from services.learner.app.lane import Lane
from services.learner.app.lineage import find_parent, manifest_at
from services.learner.app.metrics import LearnerMetrics
from services.learner.app.origin import needs_reference, weights_digest
from services.learner.app.rank import Rank
from services.learner.app.reading import Reader
from services.learner.core.desk import Desk, Outcome
from services.learner.core.progress import Progress
from services.learner.engine.gang import Gang, join
from services.learner.engine.publishing import write_skeleton
from services.learner.engine.trainer import DTYPES, build_trainer
from services.learner.settings import LearnerSettings

TICK_SECONDS = 1.0
"""Ranks without work tell each other that they live this often."""


@dataclass(frozen=True)
class World:
    """What a rank uses; only rank 0 has a broker."""

    settings: LearnerSettings
    spec: RLHFJobSpec
    blobs: Blobs
    clock: Clock
    bus: Bus | None


async def live(world: World, process: Process) -> None:
    """Run one rank until the process drains; raises when the gang breaks."""
    life = asyncio.create_task(_life(world, process), name="learner")
    drained = asyncio.create_task(process.drain.wait(), name="drain")
    try:
        await asyncio.wait({life, drained}, return_when=asyncio.FIRST_COMPLETED)
        if life.done():
            life.result()
    finally:
        drained.cancel()
        life.cancel()


async def _life(world: World, process: Process) -> None:
    settings = world.settings
    lane = Lane(threads=world.spec.learner.threads)
    front = _front(world, process)
    rank: Rank | None = None
    if front:
        nothing = Progress()
        process.spawn(front.beat(lambda: rank.progress if rank else nothing), name="beats")
        process.spawn(front.hear_planner(), name="planner")
    with TemporaryDirectory(dir=settings.staging or None, prefix="learner-") as made:
        gang = await lane.run(
            join,
            settings.rank,
            settings.world_size or world.spec.learner.ranks,
            settings.rendezvous or f"file://{made}/meeting",
            device=world.spec.learner.device,
            timeout=settings.collective_seconds,
        )
        process.log.info("gang met", rank=gang.rank, ranks=gang.size, device=str(gang.device))
        parent = await _parent(world, gang, lane)
        if front and needs_reference(world.spec):
            model = local_path(world.spec.model.uri)
            front.reference = await asyncio.to_thread(weights_digest, model)
        rank = await _build(world, gang, lane, Path(made))
        await rank.start(parent)
        process.log.info("policy published", policy=rank.progress.policy, parent=parent)
        await _obey(world, process, gang=gang, lane=lane, rank=rank, front=front)


def _front(world: World, process: Process) -> Front | None:
    if world.bus is None:
        return None
    settings = world.settings
    return Front(
        bus=world.bus,
        uid=settings.job_uid,
        attempt=settings.attempt,
        instance=settings.pod,
        log=process.log,
    )


async def _parent(world: World, gang: Gang, lane: Lane) -> Ref | None:
    """What to restore from: found by rank 0, told to all."""
    settings = world.settings
    found: Ref | None = None
    if gang.leads and settings.restore:
        found = await manifest_at(world.blobs, settings.restore)
    elif gang.leads:
        found = await find_parent(
            blobs=world.blobs,
            clock=world.clock,
            uid=settings.job_uid,
            attempt=settings.attempt,
            patience=min(settings.start_seconds, settings.collective_seconds),
        )
    said = await lane.run(gang.broadcast, encode(found) if found else b"")
    return decode(said, Ref) if said else None


async def _build(world: World, gang: Gang, lane: Lane, folder: Path) -> Rank:
    spec, settings = world.spec, world.settings
    model = local_path(spec.model.uri)
    trainer = await lane.run(build_trainer, spec, gang, model, backend=settings.compile_backend)
    skeleton = folder / "skeleton"
    if gang.leads:
        await lane.run(
            write_skeleton,
            skeleton,
            model=model,
            tokenizer=local_path(spec.model.tokenizer_uri or spec.model.uri),
            chat_template=spec.model.chat_template,
            dtype=DTYPES[spec.model.dtype],
            scores=isinstance(spec.algorithm, RewardModelSpec),
        )
    return Rank(
        uid=settings.job_uid,
        attempt=settings.attempt,
        trainer=trainer,
        reader=Reader(
            blobs=world.blobs,
            spec=spec,
            rank=gang.rank,
            ranks=gang.size,
            layout=trainer.rows,
        ),
        lane=lane,
        blobs=world.blobs,
        clock=world.clock,
        skeleton=skeleton,
        staging=folder,
        verify=spec.checkpoint.verify,
        patience=min(settings.storage_seconds, spec.deadlines.learn_seconds / 2),
    )


async def _obey(
    world: World, process: Process, *, gang: Gang, lane: Lane, rank: Rank, front: Front | None
) -> None:
    """Take orders for ever; an empty one is the sign of life of an idle gang."""
    clerk = _Clerk(world, process, front, rank) if front else None
    if world.bus:
        bus = world.bus
        process.health.require_ready("broker", lambda: "" if bus.connected else "no broker")
    process.health.ready = True
    while True:
        order = await clerk.next_order() if clerk else None
        said = await lane.run(gang.broadcast, encode(order) if order else b"")
        if not said:
            await lane.run(gang.votes)
            continue
        command: LearnerCommand = decode(said, LearnerCommand)  # type: ignore[arg-type]
        if isinstance(command, Learn):
            process.place.step = command.token.step
        outcome = await rank.obey(command)
        if clerk:
            clerk.finished(command, outcome)


class _Clerk:
    """Rank 0's paperwork around the work: answers, metrics, logs, tidying."""

    def __init__(self, world: World, process: Process, front: Front, rank: Rank) -> None:
        self._process = process
        self._clock, self._settings = world.clock, world.settings
        self._front = front
        self._rank = rank
        self._metrics = LearnerMetrics(process.registry)
        self._janitor = Janitor(
            blobs=world.blobs,
            uid=world.settings.job_uid,
            attempt=world.settings.attempt,
            keep=world.settings.keep_policies,
            log=process.log,
        )
        self._sweeping: asyncio.Task[None] | None = None
        assert rank.progress.policy is not None
        self._janitor.published(rank.progress.policy.n)
        self._metrics.published(rank.progress.policy.n)
        self._desk: Desk = front.open(rank.progress)
        process.spawn(front.serve(process.drain), name="commands")

    async def next_order(self) -> LearnerCommand | None:
        return await self._front.next_order(TICK_SECONDS)

    def finished(self, command: LearnerCommand, outcome: Outcome) -> None:
        self._front.finish(command, outcome)
        self._metrics.ended(outcome)
        log = self._process.log
        if isinstance(outcome, Refusal):
            log.warning("work refused", code=outcome.code, why=outcome.detail)
            return
        log.info("work done", kind=type(outcome).__name__, policy=outcome.policy.n)
        if isinstance(outcome, Learned):
            self._trace(outcome)
            self._heed({stat.name: stat.value for stat in outcome.stats})
            self._janitor.published(outcome.policy.n)
            self._tidy(outcome.policy.n)

    def _trace(self, outcome: Learned) -> None:
        now, settings, token = self._clock.wall(), self._settings, outcome.token
        trace = StepTrace(settings.job_uid, token.attempt, token.step)
        told: dict[str, str | int | float]
        told = {"ebbtide.policy": outcome.policy.n, "ebbtide.manifest": token.manifest_digest}
        start = now - outcome.seconds
        self._process.spans.add(trace.part("learner", "learn", settings.pod, start, now, told))

    def _heed(self, stats: Mapping[str, float]) -> None:
        if stats.get("mismatch_alarm"):
            names = ("mismatch_kl", "mismatch_ess", "mismatch_correlation", "mismatch_ratio_max")
            self._process.log.warning(
                "engine and learner disagree at equal weights", **{n: stats[n] for n in names}
            )

    def _tidy(self, current: int) -> None:
        """Sweep beside the work; one sweep at a time, the next one makes up for it."""
        if self._sweeping is None or self._sweeping.done():
            sweep = self._janitor.sweep(current, self._desk.saved)
            self._sweeping = self._process.spawn(sweep, name="tidy")
