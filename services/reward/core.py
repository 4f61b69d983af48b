"""What the reward service decides: scores from outcomes, retries, the breaker (pure).

A score is tri-state. Value: the answer's worth, its own faults included. Invalid: not the
answer's fault, trying again changes nothing. Error: infrastructure, tried again, then counted;
never a reward of 0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ebbtide.errors import Refused
from ebbtide.rewards.outcomes import Answer, Broken, Judged, Outcome, Reply, Unusable, Worth
from ebbtide.spec import Component, JudgeReward, RemoteReward, RewardSpec
from ebbtide.wire import (
    LARGEST_SCORE,
    Error,
    Invalid,
    Part,
    Rollout,
    Score,
    ScoreReady,
    ScoreRequest,
    TurnReady,
    Value,
    digest,
)

FIRST_DELAY = 0.1
LONGEST_DELAY = 5.0
REWARD = "/spec/reward/components"


class TimedOut(msgspec.Struct, frozen=True, tag="timed_out"):
    """The worker was killed at the hard limit while it worked on this answer."""


class Crashed(msgspec.Struct, frozen=True, tag="crashed"):
    """The worker died of this answer: twice, the second time with this answer alone.

    `status`: how it ended, a negative number for a signal.
    """

    status: int = 0


class NoWorker(msgspec.Struct, frozen=True, tag="no_worker"):
    """No worker could be had."""

    why: str


Verdict = Judged | TimedOut | Crashed | NoWorker


def score(components: Sequence[Component], verdict: Verdict) -> Score:
    """The score of one answer: the weighted sum, or whose fault it is that there is none."""
    match verdict:
        case TimedOut():
            return Value(total=0.0, parts=(), fault="timeout")
        case Crashed():
            return Value(total=0.0, parts=(), fault="crash")
        case NoWorker(why):
            return Error(error_class="NoWorker", detail=why)
        case Judged(outcomes):
            return _sum(components, outcomes)


def _sum(components: Sequence[Component], outcomes: Sequence[Outcome]) -> Score:
    named = list(zip(components, outcomes, strict=True))
    for component, outcome in named:
        if isinstance(outcome, Broken):
            return Error(outcome.error_class, f"{component.name}: {outcome.detail}")
    for component, outcome in named:
        if isinstance(outcome, Unusable):
            return Invalid(f"{component.name}: {outcome.why}")
    worths = [(c, o) for c, o in named if isinstance(o, Worth)]
    parts = tuple(Part(c.name, o.value, o.value * c.weight) for c, o in worths)
    for part in parts:
        if abs(part.value) > LARGEST_SCORE:
            return Invalid(f"{part.name}: {part.value:g} is beyond {LARGEST_SCORE:g}")
    total = math.fsum(part.weighted for part in parts)
    if abs(total) > LARGEST_SCORE:
        return Invalid(f"the weighted sum {total:g} is beyond {LARGEST_SCORE:g}")
    return Value(total, parts, next((o.fault for _, o in worths if o.fault), ""))


# --- turns ------------------------------------------------------------------------------------


def may_go_on(rollout: Rollout, max_turns: int) -> bool:
    """Whether the environment is asked: the policy stopped by itself and has another turn."""
    return rollout.finish == "stop" and rollout.key.turn + 1 < max_turns


def replied(verdict: Verdict) -> Reply | Score:
    """What the environment said, or whose fault it is that it said nothing."""
    match verdict:
        case Judged((Reply() as reply,)):
            return reply
        case Judged((Unusable(why),)):
            return Invalid(f"environment: {why}")
        case Judged((Broken(error_class, detail),)):
            return Error(error_class, f"environment: {detail}")
        case Judged((Worth(_, fault),)):
            return Value(total=0.0, parts=(), fault=fault)
        case other:
            return score((), other)


# --- trying again -----------------------------------------------------------------------------


def delay(request: ScoreRequest, tries: int) -> float:
    """Seconds before try number `tries` + 1: doubling, spread by the sample so none march in step."""
    name = f"{request.rollout.digest}{tries}"
    spread = int(digest(name.encode())[:8], 16) / 2**32
    return float(min(FIRST_DELAY * 2 ** (tries - 1), LONGEST_DELAY) * (0.5 + spread))


class Breaker:
    """Stops the intake after `limit` errors in a row; then lets one through at a time.

    Closed: any number. Open: none until `rest` seconds have passed (twice as many after each
    failed trial, up to 16 times), then one; its success closes.
    """

    def __init__(self, *, limit: int, rest: float) -> None:
        self._limit = limit
        self._first_rest = self._rest = rest
        self._errors = 0
        self._until: float | None = None

    @property
    def open(self) -> bool:
        """Whether intake is stopped or on trial."""
        return self._until is not None

    @property
    def rest(self) -> float:
        """Seconds for which handed-back work had better stay away."""
        return self._rest

    def allowance(self, now: float, in_flight: int, capacity: int) -> int:
        """How many more answers may be taken at `now`."""
        if self._until is None:
            return max(0, capacity - in_flight)
        return int(now >= self._until and in_flight == 0)

    def succeeded(self) -> None:
        """Something was scored: the way is free."""
        self._errors, self._until, self._rest = 0, None, self._first_rest

    def failed(self, now: float) -> None:
        """An error; opens at the limit, and again after a failed trial."""
        self._errors += 1
        if self._until is not None and now >= self._until:
            self._rest = min(2 * self._rest, 16 * self._first_rest)
            self._until = now + self._rest
        elif self._until is None and self._errors >= self._limit:
            self._until = now + self._rest


class Deaths:
    """Whose fault it is that answers end their workers: theirs, or the reward's.

    Where others are judged, an answer's own. Until then nobody knows, and it is an error. `limit`
    in a row, with no other judged between them, are the reward's, which no patience mends.
    """

    def __init__(self, *, limit: int, what: str = "reward", field: str = REWARD) -> None:
        self._limit, self._what, self._field = limit, what, field
        self._row = 0
        self._judges = False

    def judged(self) -> None:
        """An answer was judged."""
        self._row, self._judges = 0, True

    def died(self, crashed: Crashed) -> Score:
        """What the answer gets. Raises Refused at the limit."""
        self._row += 1
        how = _ending(crashed.status)
        if self._row >= self._limit:
            raise Refused(
                f"the {self._what} ended its own worker at {self._row} answers in a row (last:"
                f" {how}) and judged none between them; try its functions on an answer outside the"
                " job",
                field=self._field,
            )
        if self._judges:
            return Value(total=0.0, parts=(), fault="crash")
        return Error("WorkerDied", f"the {self._what} ended its own worker ({how})")


def _ending(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"


# --- names ------------------------------------------------------------------------------------


def scorer_digest(spec: RewardSpec, versions: Mapping[str, str]) -> str:
    """Names everything that shapes a score: the components and the versions of what judges."""
    components = [component.model_dump(mode="json") for component in spec.components]
    return digest(msgspec.json.encode([components, dict(versions)], order="deterministic"))


def dedup_id(ready: ScoreReady | TurnReady, attempt: int, instance: str, number: int) -> str:
    """A repeated verdict has the same id; an error, which may be followed by a value, never has.

    Each attempt gets a verdict of its own: what was told to an earlier one may have been ignored.
    """
    key = ready.key
    name = f"{key.job_uid}.{key.step_issued}.{key.group}.{key.index}.{key.turn}"
    failed = isinstance(ready, ScoreReady) and isinstance(ready.score, Error)
    tail = f"{instance}.{number}" if failed else "done"
    return f"score.{name}.{ready.rollout_digest[:16]}.{attempt}.{tail}"


# --- scorers over HTTP ------------------------------------------------------------------------

_PLACES = re.compile(r"\{(prompt|response|reference)\}")


class Key(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A secret and the origin (scheme://host[:port]) that alone may be sent it."""

    key: str
    origin: str

    def __repr__(self) -> str:
        return f"Key(origin={self.origin!r})"


class _Scored(msgspec.Struct):
    score: float


class _Message(msgspec.Struct):
    content: str


class _Choice(msgspec.Struct):
    message: _Message


class _Completion(msgspec.Struct):
    choices: tuple[_Choice, ...]


def key_of(component: RemoteReward, keys: Mapping[str, Key]) -> Key | None:
    """The key that the component names; raises Refused where it is not for that address."""
    if component.key is None:
        return None
    field = "/spec/reward/components"
    key = keys.get(component.key)
    if key is None:
        raise Refused(f"{component.name}: there is no key {component.key!r}", field=field)
    if _origin(component.uri) != _origin(key.origin):
        detail = f"{component.name}: key {component.key!r} is for {key.origin} alone"
        raise Refused(detail, field=field)
    return key


def _origin(uri: str) -> tuple[str, str, int | None]:
    parts = urlsplit(uri)
    usual = {"https": 443, "http": 80}.get(parts.scheme)
    return parts.scheme, parts.hostname or "", parts.port or usual


def scored(reply: bytes) -> Outcome:
    """From a server's reply, {"score": number}."""
    try:
        return Worth(msgspec.json.decode(reply, type=_Scored).score)
    except msgspec.DecodeError as error:
        return Broken("BadReply", f"the server's reply has no score: {error}")


def judge_message(component: JudgeReward, answer: Answer) -> str | Unusable:
    """The template with its places filled, each once: what is filled in is not looked at again."""
    try:
        reference = msgspec.json.decode(answer.reference or b"{}", type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return Unusable("the reference is not a JSON object")
    wanted = reference.get(component.answer_field)
    if wanted is None and "{reference}" in component.template:
        return Unusable(f"the reference has no {component.answer_field!r}")
    text = wanted if isinstance(wanted, str) else msgspec.json.encode(wanted).decode()
    places = {"prompt": answer.prompt, "response": answer.response, "reference": text}
    return _PLACES.sub(lambda found: places[found[1]], component.template)


def judged_text(component: JudgeReward, reply: bytes) -> Outcome:
    """The score in a chat completion, from 0 to 1; a text without exactly one is unusable."""
    try:
        choices = msgspec.json.decode(reply, type=_Completion).choices
    except msgspec.DecodeError as error:
        return Broken("BadReply", f"the judge's reply is no chat completion: {error}")
    found = [m[1] for c in choices[:1] for m in re.finditer(component.pattern, c.message.content)]
    if len(found) != 1:
        return Unusable(f"the judge gave {len(found) or 'no'} scores")
    try:
        score = float(found[0])
    except (TypeError, ValueError):
        return Unusable("the judge's score is not a number")
    if not component.low <= score <= component.high:
        return Unusable(f"the judge's score {score:g} is not on its scale")
    return Worth((score - component.low) / (component.high - component.low))
