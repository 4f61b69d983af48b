"""Takes in facts: what ended on an actor, and what a scorer found (pure).

The rule of acceptance: only the current hand-out of a sample counts, never whichever comes
first, which would favour short answers. Every fact is answered, late and repeated ones too.
"""

from __future__ import annotations

from collections import Counter

from ebbtide.wire import (
    Abandoned,
    Accepted,
    Continued,
    Cut,
    Error,
    Failed,
    Finished,
    Scored,
    ScoreReady,
    ScoreRequest,
    TurnReady,
)
from services.planner.core.cost import Meter
from services.planner.core.effects import Acknowledge, AskScores
from services.planner.core.events import Facts
from services.planner.core.handouts import Handouts
from services.planner.core.pen import Pen
from services.planner.core.samples import ABANDONED, ACCEPTED, OUT, WAITING, OpenStep, code_of
from services.planner.core.scoring import ScoringDesk, verdict
from services.planner.core.transit import Transit

_ENGINE_FAILURES = 3
"""A sample whose engine failed this often is given up: it may be what breaks the engine."""
_SCORES_AT_ONCE = 256


class Intake:
    """`why`: how often samples of this job had no value, by the reason given."""

    def __init__(
        self,
        *,
        pen: Pen,
        handouts: Handouts,
        transit: Transit,
        scoring: ScoringDesk,
        meter: Meter,
    ) -> None:
        self._pen, self._handouts, self._scoring, self._meter = pen, handouts, scoring, meter
        self._transit = transit
        self._asks = 0
        self._requests: list[ScoreRequest] = []
        self._failures: Counter[int] = Counter()
        self._void: set[int] = set()
        self.why: Counter[str] = Counter()
        self._takers = {
            Finished: self._finished,
            Cut: self._cut,
            Failed: self._failed,
            ScoreReady: self._score,
            TurnReady: self._turn,
        }

    def take(self, facts: Facts) -> None:
        """Take in each fact; acknowledge them all once what they led to is durable."""
        step = self._pen.book.open
        for _, fact in facts.arrived:
            self._takers[type(fact)](step, fact)  # type: ignore[operator]
        self._pen.do(Acknowledge(tuple(token for token, _ in facts.arrived)))
        self.ask()

    def begin(self) -> None:
        """A step is opened: nothing is known against its samples."""
        self._failures.clear()
        self._void.clear()
        self._scoring.clear()

    def request(self, step: OpenStep, sample: int) -> None:
        """Have a score asked for, with the next `ask`."""
        accepted, group = step.rollouts[sample], step.group(sample)
        assert accepted is not None
        self._requests.append(
            ScoreRequest(
                key=accepted.key,
                attempt=self._pen.fence.attempt,
                rollout=accepted.ref,
                prompt_id=group.prompt_id,
                prompt_ref=group.prompt_ref,
            )
        )

    def ask(self) -> None:
        """Queue the requests for the scorers."""
        requests, self._requests = self._requests, []
        for start in range(0, len(requests), _SCORES_AT_ONCE):
            self._asks += 1
            self._pen.do(AskScores(tuple(requests[start : start + _SCORES_AT_ONCE]), self._asks))

    def abandon(self, step: OpenStep, sample: int, why: str) -> None:
        """Give the sample up, once and for all."""
        self.why[why] += 1
        self._waste(step, sample)
        self._handouts.ended(step.actors[sample], step.codes[sample])
        self._scoring.done(sample, self._pen.reachable)
        self._pen.write(Abandoned(step.key(sample), why))

    def _waste(self, step: OpenStep, sample: int) -> None:
        journal, accepted = step.journals[sample], step.rollouts[sample]
        drawn = journal[1] - step.given_tokens(sample) if journal else step.drawn_before(sample)
        tokens = accepted.n_tokens if accepted else drawn
        step.wasted_tokens += tokens
        self._meter.wasted(step.actors[sample], tokens)

    # --- facts ------------------------------------------------------------------------------------

    def _finished(self, step: OpenStep | None, fact: Finished) -> None:
        sample = self._current(step, fact)
        if step is None or sample is None:
            self._nobody_waits(step, fact)
        elif fact.policy != step.plan.policy:
            self._again(step, sample)
        else:
            self._accept(step, sample, fact)

    def _accept(self, step: OpenStep, sample: int, fact: Finished) -> None:
        self._handouts.ended(fact.actor, step.codes[sample])
        self._pen.write(
            Accepted(
                key=fact.key,
                dispatch=fact.dispatch,
                ref=fact.ref,
                policy=fact.policy,
                n_tokens=fact.n_tokens,
                finish=fact.finish,
                n_given=fact.n_given,
            )
        )
        self._handouts.settling.accepted(fact.actor, fact.dispatch)
        self._meter.drew(fact.actor, fact.n_tokens - step.drawn_before(sample))
        self._scoring.ask(sample, self._pen.reachable)
        self.request(step, sample)
        self._pen.progress_at = self._pen.now

    def _cut(self, step: OpenStep | None, fact: Cut) -> None:
        sample = self._current(step, fact)
        if step is None or sample is None:
            self._nobody_waits(step, fact)
            return
        if fact.journal and fact.journal.dispatch == fact.dispatch:
            step.progressed(sample, fact.dispatch, fact.n_tokens)
        self._again(step, sample)
        self._transit.was_cut(step, sample, fact)

    def _failed(self, step: OpenStep | None, fact: Failed) -> None:
        sample = self._current(step, fact)
        if step is None or sample is None:
            self._nobody_waits(step, fact)
            return
        if fact.code == "journal_lost":
            step.restart(sample)
            self._handouts.tickets.drop(sample)
        self._failures[sample] += fact.code == "engine"
        hopeless = fact.code == "prompt" or self._failures[sample] >= _ENGINE_FAILURES
        if hopeless:
            self.abandon(step, sample, f"{fact.code}: {fact.detail}"[:200])
            self._handouts.settling.void(fact.actor, fact.dispatch)
        else:
            self._again(step, sample)

    def _current(self, step: OpenStep | None, fact: Finished | Cut | Failed) -> int | None:
        """The sample that waits for this very hand-out to end."""
        sample = step.holder(code_of(fact.dispatch)) if step else None
        if step is None or sample is None or step.find(fact.key) != sample:
            return None
        return sample if step.states[sample] in (WAITING, OUT) else None

    def _again(self, step: OpenStep, sample: int) -> None:
        """The hand-out ended without a rollout. Its actor keeps its copy until another is out."""
        step.ended.add(step.codes[sample])
        if step.states[sample] == OUT:
            self._handouts.wait_again(step, [sample])

    def _nobody_waits(self, step: OpenStep | None, fact: Finished | Cut | Failed) -> None:
        """A repeat, or of a hand-out that is not current: the actor is told which."""
        self._handouts.settle(step, fact.actor, fact.dispatch)
        code = code_of(fact.dispatch)
        mine = step.sample_of.get(code) if step else None
        if step is None or mine is None or not isinstance(fact, Finished) or code in self._void:
            return
        if code in step.passed:
            return
        if step.codes[mine] != code or step.states[mine] == ABANDONED:
            self._void.add(code)
            step.counts["void"] += 1
            drawn = max(0, fact.n_tokens - step.drawn_before(mine))
            step.wasted_tokens += drawn
            self._meter.wasted(fact.actor, drawn)

    def _score(self, step: OpenStep | None, fact: ScoreReady) -> None:
        sample = self._asked_of(step, fact)
        if step is None or sample is None:
            return
        score = verdict(fact.score)
        if not isinstance(score, Error):
            self._scoring.done(sample, self._pen.reachable)
            self._pen.write(Scored(fact.key, score, fact.scorer_digest))
            self._count(score)
        elif not self._scoring.failed(sample, self._pen.reachable):
            self.abandon(step, sample, f"scoring: {score.error_class} {score.detail}"[:200])
        self._pen.progress_at = self._pen.now

    def _turn(self, step: OpenStep | None, fact: TurnReady) -> None:
        """The environment has replied; its reply to another rollout of the turn says nothing."""
        sample = self._asked_of(step, fact)
        if step is None or sample is None:
            return
        self._scoring.done(sample, self._pen.reachable)
        if not step.may_go_on(sample) or fact.n_tokens >= step.group(sample).max_new_tokens:
            self.abandon(step, sample, "environment: it goes on beyond the last turn or token")
            return
        self._pen.write(Continued(fact.key, fact.given, fact.n_tokens, fact.scorer_digest))
        self._handouts.put_back([sample], of=step.actors[sample])
        self._pen.progress_at = self._pen.now

    def _asked_of(self, step: OpenStep | None, fact: ScoreReady | TurnReady) -> int | None:
        """The sample whose accepted rollout a scorer speaks of."""
        sample = step.find(fact.key) if step else None
        if step is None or sample is None or step.states[sample] != ACCEPTED:
            return None
        accepted = step.rollouts[sample]
        known = accepted is not None and accepted.ref.digest == fact.rollout_digest
        return sample if known and step.key(sample) == fact.key else None

    def _count(self, score: object) -> None:
        why = getattr(score, "why", "")
        if why:
            self.why[f"invalid: {why}"[:200]] += 1
