"""Time that the planner's core takes for one big step: 65,536 samples on 64 actors.

`measure()` drives the core alone, as its shell does: facts in fetches of 256, a heartbeat of
every actor after each eighth of the samples. Judged are all finish and score events together.
"""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Iterable

from benchmarks.harness import Measured
from ebbtide.wire import (
    Assign,
    DatasetIndex,
    EngineStats,
    Epoch,
    Fact,
    Finished,
    Heartbeat,
    LearnerBeat,
    Ok,
    PolicyRef,
    Ref,
    ScoreReady,
    ScoreRequest,
    Submit,
    Value,
    pack_ints,
)
from services.planner.app.body import relax_gc
from services.planner.core.book import Book
from services.planner.core.config import (
    Data,
    Deadlines,
    Economy,
    Grpo,
    JobConfig,
    Patience,
)
from services.planner.core.effects import AskScores, Effect, LoadPrompts, Send
from services.planner.core.events import Facts, Heard, Prompt, PromptsLoaded, Replied, Tick
from services.planner.core.planner import Planner

UID = "00000000-0000-0000-0000-000000000001"
ACTORS, GROUPS, GROUP_SIZE, SLOTS, FETCH = 64, 8192, 8, 512, 256
POLICY = PolicyRef(0, 1, "a" * 64)
BLOB = Ref("jobs/x/rollouts/00000000/000000-0000-0-1.1.0.msgpack", "b" * 64, 4096)


class Rig:
    """The core, what it asked for, and the seconds that it took by kind of event."""

    def __init__(self, *, groups: int = GROUPS, slots: int = SLOTS) -> None:
        book = Book(job_uid=UID)
        book.apply(Epoch(1, 1, 0, None))
        config = _config(groups, slots)
        self.planner = Planner(config=config, data=_data(groups), book=book, pod="p", now=0.0)
        self.slots = slots
        self.now = 0.0
        self.seconds: dict[str, float] = defaultdict(float)
        self.events: dict[str, int] = defaultdict(int)
        self.submitted: deque[tuple[str, Assign]] = deque()
        self.running: dict[str, dict[int, Assign]] = defaultdict(dict)
        self.asked: list[ScoreRequest] = []
        self._number = 0
        self._token = 0

    def feed(self, kind: str, event: Facts | Heard | Replied | PromptsLoaded | Tick) -> None:
        """One timed step of the core; what it asks for is noted, and submits are answered."""
        begin = time.process_time()
        effects = self.planner.step(event, self.now)
        self.seconds[kind] += time.process_time() - begin
        self.events[kind] += len(event.arrived) if isinstance(event, Facts) else 1
        self._note(effects)

    def _note(self, effects: Iterable[Effect]) -> None:
        answers: list[Replied] = []
        for effect in effects:
            match effect:
                case AskScores(requests=requests):
                    self.asked += requests
                case LoadPrompts(step=0, train=train):
                    prompts = tuple(Prompt(f"p{n}", 20) for n in range(len(train)))
                    self.feed("open", PromptsLoaded(0, prompts, ()))
                case Send(call=call, to=to, command=Submit(assigns=assigns)):
                    self.submitted += [(to, assign) for assign in assigns]
                    self.running[to].update({a.dispatch.seq: a for a in assigns})
                    answers.append(Replied(call, Ok(self._number + 1)))
        for answer in answers:
            self.feed("reply", answer)

    def beats(self) -> None:
        """A heartbeat of every actor, with all that it runs."""
        self._number += 1
        self.now += 1.0
        for name in [f"actor-{n:03d}" for n in range(ACTORS)]:
            rows = [(1, 1, seq, 10) for seq in self.running[name]]
            stats = EngineStats(running=len(rows), slots=self.slots)
            beat = Heartbeat(
                name, "i", self._number, None, POLICY, "serving", pack_ints(rows), (), stats
            )
            self.feed("beat", Heard(beat))
        self.feed("tick", Tick())

    def facts(self, kind: str, facts: list[Fact]) -> None:
        for start in range(0, len(facts), FETCH):
            some = facts[start : start + FETCH]
            tokens = range(self._token, self._token + len(some))
            self._token += len(some)
            self.feed(kind, Facts(tuple(zip(tokens, some, strict=True))))

    def run(self) -> None:
        """A whole step: open, decode and score in eighths, until the learner is asked."""
        self.beats()
        index = Ref("index", "c" * 64, 1)
        self.feed("open", Heard(LearnerBeat(1, POLICY, index, "idle", 0)))
        self.beats()
        while self.submitted:
            due, self.submitted = self.submitted, deque()
            self.facts("finish", [self._finish(to, assign) for to, assign in due])
            asked, self.asked = self.asked, []
            self.facts("score", [_score(request) for request in asked])
            self.beats()

    def _finish(self, to: str, assign: Assign) -> Finished:
        del self.running[to][assign.dispatch.seq]
        return Finished(assign.key, assign.dispatch, to, POLICY, BLOB, 100, "stop")


def measure() -> Measured:
    """One big step, and one of the size that 64 actors are benchmarked with."""
    relax_gc()  # as the planner's process does
    big, small = Rig(), Rig(groups=512, slots=64)
    big.run()
    small.run()
    kinds = ("open", "beat", "reply", "tick", "finish", "score")
    rows = [
        (kind, big.events[kind], big.seconds[kind], small.events[kind], small.seconds[kind])
        for kind in kinds
    ]
    columns = ("event", "count (65,536)", "seconds", "count (4,096)", "seconds")
    assert big.planner.standing().phase == "learn", big.planner.standing()
    return Measured(big.seconds["finish"] + big.seconds["score"], columns, rows)


def _score(request: ScoreRequest) -> ScoreReady:
    value = Value(float(request.key.index % 2), ())
    return ScoreReady(request.key, request.rollout.digest, value, "rules", 0.001, "scorer")


def _config(groups: int, slots: int) -> JobConfig:
    return JobConfig(
        job_uid=UID,
        seed=0,
        shuffle=True,
        total_steps=2,
        work=Grpo(groups, GROUP_SIZE, 1.0, 512, "none", False, True, ACTORS, slots, 3, None),
        ranks=8,
        microbatch_tokens=65536,
        checkpoint_every=10,
        retain=2,
        save_on_suspend=True,
        deadlines=Deadlines(1e6, 1e6, 1e6),
        economy=Economy("USD", {}, "value-of-time", 0.0),
        patience=Patience(),
    )


def _data(rows: int) -> Data:
    chunks = tuple(BLOB for _ in range(-(-rows // 256)))
    return Data(DatasetIndex("d", rows, 256, chunks, (), "t", "c", (0,), 0, 16), BLOB)
