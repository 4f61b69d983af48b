"""Asks the environment after a turn, and writes down what the next turn begins from."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from ebbtide import journals, paths
from ebbtide.errors import EbbtideError
from ebbtide.ports import Blobs
from ebbtide.rewards.outcomes import Answer, Judged, Reply
from ebbtide.spec import EnvironmentSpec
from ebbtide.turns import given_ids, replied
from ebbtide.wire import Error, Invalid, Journal, Ref, Score, digest, encode
from services.reward import core
from services.reward.app.library import Found, Words
from services.reward.app.metrics import RewardMetrics

Ask = Callable[[Answer], Awaitable[core.Verdict]]


class Given(msgspec.Struct, frozen=True):
    """The episode goes on from the text at `given`, `n_tokens` long."""

    given: Ref
    n_tokens: int


class Episodes:
    """`limit`: tokens that a response may have, those of the environment included."""

    def __init__(
        self,
        *,
        spec: EnvironmentSpec,
        ask: Ask,
        blobs: Blobs,
        words: Words,
        limit: int,
        deaths: core.Deaths,
        metrics: RewardMetrics,
    ) -> None:
        self._spec, self._ask, self._blobs, self._words = spec, ask, blobs, words
        self._limit, self._deaths, self._metrics = limit, deaths, metrics

    async def reply(self, found: Found) -> Given | Score | None:
        """How the episode goes on; None: it is over and to be scored. A Score: it cannot go on.

        Raises Refused where only dead workers come of it.
        """
        if not core.may_go_on(found.rollout, self._spec.max_turns):
            return None
        verdict = await self._ask(found.answer)
        if isinstance(verdict, core.Crashed):
            return self._deaths.died(verdict)
        if isinstance(verdict, Judged):
            self._deaths.judged()
        said = core.replied(verdict)
        if not isinstance(said, Reply):
            self._metrics.turn(type(said).__name__.lower())
            return said
        return await self._go_on(found, said)

    async def _go_on(self, found: Found, said: Reply) -> Given | Invalid | Error | None:
        text = None if said.text is None else self._text(found, said.text)
        if isinstance(text, Invalid):
            self._metrics.turn("invalid")
            return text
        if text is None or journals.length(text) >= self._limit:
            self._metrics.turn("over" if text is None else "full")
            return None
        data = encode(text)
        try:
            ref = await self._blobs.put(paths.given(found.rollout.key, digest(data)), data)
        except EbbtideError as error:
            self._metrics.turn("error")
            return Error(type(error).__name__, str(error))
        self._metrics.turn("reply")
        return Given(ref, journals.length(text))

    def _text(self, found: Found, reply: str) -> Journal | Invalid:
        """The text so far with the reply."""
        ids, most = self._words.ids(reply), self._spec.max_reply_tokens
        if len(ids) > most:
            return Invalid(f"environment: a reply of {len(ids)} tokens, maxReplyTokens is {most}")
        if not ids:
            return Invalid("environment: an empty reply")
        given = given_ids(found.rollout.tokens, found.row.opens, ids, found.row.closes)
        return replied(found.rollout, given)
