"""The scorers of the planner's model world: they score what is queued, or reply."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ebbtide import paths
from ebbtide.wire import (
    Error,
    Invalid,
    Journal,
    RewardBeat,
    Rollout,
    SampleKey,
    Score,
    ScoreReady,
    ScoreRequest,
    TurnReady,
    Value,
    decode,
    digest,
    encode,
)
from tests.unit.planner.parties import ref_to

if TYPE_CHECKING:
    from tests.unit.planner.world import World


class ModelScorer:
    """Scores what is queued, or replies; `errors`: how many of the next verdicts are errors."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.errors = 0
        self.invalid = 0
        self.done = 0

    def work(self, count: int = 10**6) -> None:
        todo, self.world.scoring = self.world.scoring[:count], self.world.scoring[count:]
        for request in todo:
            self._score(request)
        self.world.beat(RewardBeat("scorer", 0, self.done, 0, False, "rules"))

    def _score(self, request: ScoreRequest) -> None:
        self.done += 1
        rollout = decode(self.world.blobs[request.rollout.path], Rollout)
        reply = None if self.errors else self.world.reply(rollout)
        if reply is not None:
            self._go_on(request, reply)
            return
        verdict = self._verdict(request.key)
        fact = ScoreReady(request.key, request.rollout.digest, verdict, "rules", 0.0, "scorer")
        self.world.publish(fact, self.done)

    def _go_on(self, request: ScoreRequest, text: Journal) -> None:
        data = encode(text)
        path = paths.given(request.key, digest(data))
        self.world.blobs[path] = data
        key, named, n = request.key, request.rollout.digest, len(text.tokens) // 4
        fact = TurnReady(key, named, ref_to(path, data), n, "rules", 0.0, "scorer")
        self.world.publish(fact, self.done)

    def _verdict(self, key: SampleKey) -> Score:
        if self.errors:
            self.errors -= 1
            return Error("OutOfMemory")
        if self.invalid:
            self.invalid -= 1
            return Invalid("raised")
        return Value(self.world.worth(key), ())
