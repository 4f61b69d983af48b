"""From one request to one verdict: read, judge, try again what infrastructure spoilt."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ebbtide.errors import EbbtideError
from ebbtide.logs import Log
from ebbtide.ports import Clock
from ebbtide.rewards.outcomes import Answer, Judged
from ebbtide.spec import Component, RewardSpec
from ebbtide.wire import Error, SampleKey, Score, ScoreReady, ScoreRequest, TurnReady
from services.reward import core
from services.reward.app.episodes import Episodes, Given
from services.reward.app.library import Found, Library
from services.reward.app.metrics import RewardMetrics

Judge = Callable[[Answer], Awaitable[core.Verdict]]
_REMEMBERED = 8192

Name = tuple[SampleKey, str]


class Scoring:
    """Idempotent by (key, rollout digest): what was scored lately is answered from memory."""

    def __init__(
        self,
        *,
        spec: RewardSpec,
        library: Library,
        judge: Judge,
        breaker: core.Breaker,
        clock: Clock,
        metrics: RewardMetrics,
        log: Log,
        scorer: str,
        scorer_digest: str,
        episodes: Episodes | None = None,
    ) -> None:
        self._spec = spec
        self._library = library
        self._judge = judge
        self._episodes = episodes
        self._breaker = breaker
        self._deaths = core.Deaths(limit=spec.breaker_errors)
        self._clock = clock
        self._metrics = metrics
        self._log = log
        self._scorer = scorer
        self.scorer_digest = scorer_digest
        self._done: OrderedDict[Name, ScoreReady | TurnReady] = OrderedDict()
        self._tries: dict[Name, int] = {}
        self.scored = 0
        self.errors = 0

    async def ready(self, request: ScoreRequest) -> ScoreReady | TurnReady | None:
        """The verdict, or how the episode goes on; None while the breaker is open: the request had better come again later.

        Raises Refused if nothing but dead workers comes of the job's reward.
        """
        name = (request.key, request.rollout.digest)
        if name in self._done:
            return self._done[name]
        start = self._clock.now()
        found = await self._persist(request, name)
        if found is None:
            return None
        self._tries.pop(name, None)
        ready = self._ready(request, found, self._clock.now() - start)
        self._count(name, ready)
        return ready

    def _ready(
        self, request: ScoreRequest, found: Score | Given, seconds: float
    ) -> ScoreReady | TurnReady:
        key, named = request.key, request.rollout.digest
        told = (self.scorer_digest, seconds, self._scorer)
        if isinstance(found, Given):
            return TurnReady(key, named, found.given, found.n_tokens, *told)
        return ScoreReady(key, named, found, *told)

    async def _persist(self, request: ScoreRequest, name: Name) -> Score | Given | None:
        while True:
            score = await self._once(request)
            if not isinstance(score, Error):
                self._breaker.succeeded()
                return score
            self._fail(request, score)
            tries = self._tries[name] = self._tries.get(name, 0) + 1
            if tries > self._spec.retries:
                return score
            if self._breaker.open:
                return None
            await self._clock.sleep(core.delay(request, tries))

    async def _once(self, request: ScoreRequest) -> Score | Given:
        try:
            found = await self._library.find(request)
        except (EbbtideError, msgspec.DecodeError, IndexError) as error:
            return Error(type(error).__name__, str(error))
        goes_on = await self._reply(found)
        return await self._score(found.answer) if goes_on is None else goes_on

    async def _reply(self, found: Found) -> Given | Score | None:
        return None if self._episodes is None else await self._episodes.reply(found)

    async def _score(self, answer: Answer) -> Score:
        verdict = await self._judge(answer)
        if isinstance(verdict, core.Crashed):
            return self._deaths.died(verdict)
        if isinstance(verdict, Judged):
            self._deaths.judged()
            self._metrics.judged(verdict)
        return core.score(self._components, verdict)

    @property
    def _components(self) -> Sequence[Component]:
        return self._spec.components

    def _fail(self, request: ScoreRequest, error: Error) -> None:
        was_open = self._breaker.open
        self._breaker.failed(self._clock.now())
        self.errors += 1
        self._metrics.failed(error.error_class)
        self._log.warning("scoring failed", key=request.key, why=error.detail)
        if self._breaker.open and not was_open:
            self._log.error("breaker opened", rest=self._breaker.rest, why=error.detail)

    def _count(self, name: Name, ready: ScoreReady | TurnReady) -> None:
        self.scored += 1
        if isinstance(ready, ScoreReady):
            self._metrics.published(ready.score)
            if isinstance(ready.score, Error):
                return
        self._done[name] = ready
        while len(self._done) > _REMEMBERED:
            self._done.popitem(last=False)
