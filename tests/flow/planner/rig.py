"""A whole job in one process over fakes: the real planner and actors, a scripted rest.

Virtual time; kill -9 is the end of a role's tasks without a word. The learner is the planner
tests' model, answering on the bus; the scorer rewards short answers.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from prometheus_client import CollectorRegistry

from ebbtide import ledger, logs, paths, streams
from ebbtide.data.chunks import chunk_path, encode_rows, index_path
from ebbtide.data.outcome import Prepared
from ebbtide.engines.emulated import EmulatedEngine
from ebbtide.engines.emulation import Emulated
from ebbtide.engines.policies import policy_digest
from ebbtide.errors import Temporary
from ebbtide.ports import FactMessage, Meta, Resource
from ebbtide.runtime import Process
from ebbtide.spec import API_VERSION, RLHFJobSpec
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.bus import FakeBus
from ebbtide.testing.chaos import Chaos
from ebbtide.testing.clock import VirtualClock
from ebbtide.testing.cluster import FakeCluster
from ebbtide.testing.hot import FakeHot
from ebbtide.testing.jobs import a_spec
from ebbtide.wire import (
    Beat,
    DatasetIndex,
    LearnerCommand,
    PolicyIndex,
    PolicyRef,
    PolicyTensor,
    PromptRow,
    Record,
    Ref,
    RewardBeat,
    Rollout,
    ScoreReady,
    ScoreRequest,
    Value,
    decode,
    digest,
    encode,
    pack_floats,
    pack_ints,
)
from services.decode.app.shell import Shell as ActorShell
from services.decode.app.shell import World as ActorWorld
from services.decode.settings import DecodeSettings
from services.planner.app.shell import live
from services.planner.app.world import World as PlannerWorld
from services.planner.settings import PlannerSettings
from tests.checker.evidence import Evidence
from tests.checker.reader import settled_lines
from tests.unit.planner.parties import ModelLearner, ref_to

UID = "uid-1"
"""What the cluster gives its first object."""
Body = Callable[[Process], Awaitable[None]]

SPEC: dict[str, Any] = {
    "dataset": {
        "train": {"type": "jsonl", "uri": "/data/train.jsonl"},
        "eval": {"type": "jsonl", "uri": "/data/eval.jsonl"},
    },
    "algorithm": {"type": "grpo", "groupSize": 4},
    "training": {"totalSteps": 3, "promptsPerStep": 4, "maxResponseTokens": 32},
    "evaluation": {"everySteps": 2, "prompts": 3},
    "decode": {"engine": "emulated", "replicas": 2, "slots": 4},
    "checkpoint": {"everySteps": 1, "retain": 2},
    "prices": [{"pool": "default", "perHour": 36.0}],
}


class Role:
    """One process; `died` is what ended it, if that was an error."""

    def __init__(self, body: Body, said: io.StringIO, name: str) -> None:
        self._body, self._log = body, logs.setup("info", stream=said).bind(pod=name)
        self.process: Process | None = None
        self.died: BaseException | None = None
        self.task = asyncio.create_task(self._run(), name=name)

    async def _run(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self.process = Process(group=group, registry=CollectorRegistry(), log=self._log)
                await self._body(self.process)
                self.process.stop_background()
        except BaseExceptionGroup as group_error:
            self.died = _first(group_error)

    async def kill(self) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})

    def terminate(self) -> None:
        assert self.process is not None
        self.process.begin_drain()


class Rig:
    """Broker, stores, objects, and the processes of one job."""

    def __init__(self, folder: Path, *, seed: int = 0, **changes: Any) -> None:
        self.folder = folder
        self.clock = VirtualClock()
        self.chaos = Chaos(Random(seed))  # noqa: S311 - faults, no secrets
        self.bus = FakeBus(clock=self.clock, chaos=self.chaos)
        self.objects = FakeBlobs(folder=folder / "blobs")
        self.hot = FakeHot(clock=self.clock)
        self.cluster = FakeCluster(wall=self.clock.wall)
        self.spec = RLHFJobSpec.model_validate_json(
            msgspec.json.encode(a_spec(**{**SPEC, **changes}))
        )
        self.said = io.StringIO()
        self.roles: dict[str, Role] = {}
        self.attempt = 1
        self._beats: asyncio.Queue[Beat] = asyncio.Queue()
        self._number = 0
        self._scored = 0

    @property
    def blobs(self) -> dict[str, bytes]:
        """The store's content, as the model learner sees it."""
        return self.objects.objects

    # --- processes --------------------------------------------------------------------------------

    async def start(self, *, actors: int = 2) -> None:
        """Everything that the operator would start."""
        await self._make_objects()
        self.prepared = await self._prepare_data()
        self.start_planner()
        self.start_learner()
        self.start_scorer()
        for _ in range(actors):
            self.start_actor()

    def start_planner(self) -> str:
        name = self._name("planner")
        settings = PlannerSettings(pod=name, **self._settings())
        world = PlannerWorld(
            settings=settings,
            spec=self.spec,
            blobs=self.objects,
            bus=self.bus,
            cluster=self.cluster,
            clock=self.clock,
            writer=digest(name.encode()).encode()[:16],
            prepared=self.prepared,
        )
        return self._begin(name, lambda process: live(world, process))

    def start_actor(self) -> str:
        name = self._name("decode")
        settings = DecodeSettings(
            pod=name, audit_path=str(self.folder / f"{name}.audit"), **self._settings()
        )
        numbers = Emulated(
            slots=4, width=2000, mean_tokens=12.0, sigma=0.6, tpot=0.05, tpot_per_row=0.01
        )
        world = ActorWorld(
            settings=settings,
            slots=4,
            blobs=self.objects,
            bus=self.bus,
            hot=self.hot,
            engine=EmulatedEngine(numbers, clock=self.clock),
            clock=self.clock,
        )
        return self._begin(name, lambda p: ActorShell(world=world, process=p).run())

    def start_learner(self) -> str:
        return self._begin(self._name("learner"), self._learn)

    def start_scorer(self) -> str:
        return self._begin(self._name("reward"), self._score)

    async def kill(self, role: str, *, restart: bool = True) -> None:
        """Kill -9 the oldest process of `role`; the operator starts another."""
        name = next(name for name in self.roles if name.startswith(role))
        await self.roles.pop(name).kill()
        if role == "learner":
            await self._next_attempt()
        elif restart:
            self._starters()[role]()

    async def _next_attempt(self) -> None:
        """A broken gang: planner and learner start anew, the others stay."""
        self.attempt += 1
        await self.kill("planner", restart=False)
        self.start_planner()
        self.start_learner()

    def _starters(self) -> dict[str, Callable[[], str]]:
        return {
            "planner": self.start_planner,
            "decode": self.start_actor,
            "reward": self.start_scorer,
        }

    def of(self, role: str) -> Role:
        """The oldest process of a role."""
        return next(self.roles[name] for name in self.roles if name.startswith(role))

    async def stop(self) -> None:
        for role in list(self.roles.values()):
            await role.kill()

    def _begin(self, name: str, body: Body) -> str:
        self.roles[name] = Role(body, self.said, name)
        return name

    def _name(self, role: str) -> str:
        self._number += 1
        return f"{role}-{self._number}"

    def _settings(self) -> dict[str, Any]:
        return {
            "blobs_url": "memory:///",
            "job": "job",
            "job_uid": UID,
            "attempt": self.attempt,
            "grace_seconds": 25.0,
        }

    # --- the end ------------------------------------------------------------------------------------

    async def progress(self) -> dict[str, Any]:
        """`status.progress` of the job."""
        job = await self.cluster.get("RLHFJob", "default", "job")
        return dict(job.status.get("progress", {}))

    async def outcome(self, seconds: float = 3600.0) -> dict[str, Any]:
        """Wait for the outcome; planners that die are started again, as the operator would."""
        until = self.clock.now() + seconds
        while self.clock.now() < until:
            await self.clock.sleep(1.0)
            progress = await self.progress()
            if progress.get("outcome"):
                return progress
            for name, role in list(self.roles.items()):
                if role.task.done():
                    del self.roles[name]
                    self._starters()[name.partition("-")[0]]()
        raise AssertionError(f"no outcome: {await self.progress()}\n{self.said.getvalue()[-4000:]}")

    def records(self) -> list[Record]:
        names = sorted(path for path in self.blobs if path.startswith(paths.segments(UID)))
        segments = [ledger.decode_segment(self.blobs[name]) for name in names]
        return [record for segment in segments for record in segment.records]

    def evidence(self) -> Evidence:
        """For the checker: ledger, blobs and the actors' own synced logs."""
        audits = self.folder.glob("*.audit")
        settled = [line for audit in audits for line in settled_lines(audit.read_bytes())]
        return Evidence(UID, self.records(), settled, self.blobs)

    # --- what the operator and the data preparation would do ------------------------------------------

    async def _make_objects(self) -> None:
        for kind, spec in (("RLHFJob", {}), ("DecodePool", {"job": "job", "replicas": 2})):
            meta = Meta(name="job")
            await self.cluster.create(Resource(API_VERSION, kind, meta, spec))

    async def _prepare_data(self) -> Prepared:
        return Prepared(await self._part("train", 9), await self._part("eval", 3))

    async def _part(self, name: str, rows: int) -> Ref:
        made = tuple(
            PromptRow(f"{name}-{n}", pack_ints(range(n + 2)), "text", b"{}", "task", name)
            for n in range(rows)
        )
        data = encode_rows(made)
        path = chunk_path(name, 0)
        chunk = await self.objects.put(path, data)
        index = DatasetIndex(name, rows, 256, (chunk,), (), "tok", "tpl", (0,), 0, 64)
        return await self.objects.put(index_path(name), encode(index))

    # --- the scripted learner -------------------------------------------------------------------------

    def publish_policy(self, n: int, attempt: int, content: str) -> tuple[PolicyRef, Ref]:
        """A publication with one tensor that nobody reads."""
        tensor = PolicyTensor("w", "float32", (1,), "model.safetensors", digest(content.encode()))
        policy = PolicyRef(n, attempt, policy_digest([tensor]))
        probe = (pack_ints([1, 2]), pack_floats([-1.0]))
        data = encode(PolicyIndex(policy, (tensor,), (), (), *probe))
        path = f"{paths.policy(UID, attempt, n)}index.msgpack"
        self.blobs[path] = data
        return policy, ref_to(path, data)

    def beat(self, message: Beat) -> None:
        self._beats.put_nowait(message)

    async def _learn(self, process: Process) -> None:
        """Restores from what the ledger names, then obeys; each update takes two seconds."""
        attempt = self.attempt
        learner = ModelLearner(self, attempt=attempt, parent=await self._parent(attempt))

        async def handle(data: bytes) -> bytes:
            command: Any = decode(data, LearnerCommand)  # type: ignore[arg-type]
            return encode(learner.handle(command))

        process.spawn(self._tell(), name="beats")
        async with self.bus.serve(streams.learner(UID, attempt), handle):
            while True:
                await self.clock.sleep(2.0 if learner.running else 0.2)
                learner.work()

    async def _tell(self) -> None:
        while True:
            beat = await self._beats.get()
            await self.bus.beat(streams.beat(UID, "learner", "rank-0"), encode(beat))

    async def _parent(self, attempt: int) -> Ref | None:
        from ebbtide.wire import Epoch  # noqa: PLC0415

        while attempt > 1:
            epochs = [r for r in self.records() if isinstance(r, Epoch) and r.attempt == attempt]
            if epochs:
                return epochs[0].parent
            await self.clock.sleep(0.2)
        return None

    # --- the scripted scorer --------------------------------------------------------------------------

    async def _score(self, process: Process) -> None:
        process.spawn(self._tell_scorer(), name="beats")
        consumer = await self.bus.consume(
            streams.SCORING, streams.scorers(UID), streams.scoring(UID)
        )
        while True:
            for delivery in await consumer.fetch(8, 1.0):
                await self.clock.sleep(0.02)
                request = decode(delivery.data, ScoreRequest)
                with suppress(Temporary):
                    await self.bus.publish_facts([await self._verdict(request)])
                    await delivery.ack()

    async def _tell_scorer(self) -> None:
        subject = streams.beat(UID, "reward", "scorer")
        while True:
            beat = RewardBeat("scorer", 0, self._scored, 0, False, "rules")
            await self.bus.beat(subject, encode(beat))
            await self.clock.sleep(1.0)

    async def _verdict(self, request: ScoreRequest) -> FactMessage:
        rollout = decode(await self.objects.fetch(request.rollout), Rollout)
        value = Value(1.0 if rollout.n_tokens < 10 else 0.0, ())
        ready = ScoreReady(request.key, request.rollout.digest, value, "rules", 0.02, "scorer")
        self._scored += 1
        subject = streams.fact(UID, request.attempt, "score")
        return FactMessage(subject, encode(ready), f"score-{self._scored}")


def _first(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
