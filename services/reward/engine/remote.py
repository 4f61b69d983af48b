"""Scorers over HTTP: a server's own score, or a language model's as judge.

One pool of connections for all. Tries again what may pass (the server is away, busy or failing)
within the answer's deadline; what cannot pass is told at once. Keys are the administrator's, are
sent to their own origin alone, and appear in no message.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
import msgspec
import tenacity

from ebbtide.errors import Refused
from ebbtide.rewards.outcomes import Answer, Broken, Outcome, Unusable
from ebbtide.spec import HttpReward, JudgeReward, RemoteReward
from services.reward.core import (
    Key,
    judge_message,
    judged_text,
    key_of,
    scored,
)
from services.reward.engine.doors import Door, Forbidden, Network

_LONGEST_REPLY = 1 << 20
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 10.0
_MAY_PASS = frozenset({408, 425, 429, 500, 502, 503, 504})
_THE_ANSWERS = frozenset({400, 413, 422})
"""The server refuses this request; others may pass."""


class _Again(Exception):
    """May pass when tried again, not before `pause` seconds."""

    def __init__(self, error_class: str, detail: str, *, pause: float = 0.0) -> None:
        super().__init__(detail)
        self.broken = Broken(error_class, detail)
        self.pause = pause


class _Settled(Exception):
    """What the reply means, without trying again."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(str(outcome))
        self.outcome = outcome


class Remote:
    """One component; `score` may be called by many tasks at once."""

    def __init__(
        self, component: RemoteReward, *, http: httpx.AsyncClient, keys: Mapping[str, Key]
    ) -> None:
        key = key_of(component, keys)
        self._component = component
        self._http = http
        self._headers = {"Authorization": f"Bearer {key.key}"} if key else {}

    async def score(self, answer: Answer) -> Outcome:
        """What the server says of one answer; never raises."""
        component = self._component
        last: list[Broken] = [Broken("Timeout", f"no reply in {component.timeout_seconds} s")]
        try:
            async with asyncio.timeout(component.timeout_seconds):
                return await self._persist(answer, last)
        except TimeoutError:
            return last[-1]
        except _Settled as settled:
            return settled.outcome

    async def _persist(self, answer: Answer, last: list[Broken]) -> Outcome:
        """Tries until one passes; `last` is told why each did not."""
        retrying = tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(_Again),
            stop=tenacity.stop_after_attempt(self._component.tries),
            wait=_pause,
            reraise=True,
        )
        try:
            async for attempt in retrying:
                with attempt:
                    return await self._once(answer, last)
        except _Again as error:
            return error.broken
        raise AssertionError("tenacity gives at least one try")

    async def _once(self, answer: Answer, last: list[Broken]) -> Outcome:
        try:
            return await self._ask(answer)
        except _Again as error:
            last.append(error.broken)
            raise
        except Forbidden as error:
            return Broken("Forbidden", str(error))
        except (httpx.InvalidURL, UnicodeError) as error:  # what the job's check lets through
            return Broken("BadAddress", f"{self._component.uri}: {error}")
        except httpx.HTTPError as error:
            again = _Again(type(error).__name__, f"{self._component.uri}: {error}")
            last.append(again.broken)
            raise again from None

    async def _ask(self, answer: Answer) -> Outcome:
        component = self._component
        if isinstance(component, JudgeReward):
            message = judge_message(component, answer)
            if not isinstance(message, str):
                return message
            reply = await self._post(
                f"{component.uri.rstrip('/')}/chat/completions", _chat(component, message)
            )
            return judged_text(component, reply)
        assert isinstance(component, HttpReward)
        return scored(await self._post(component.uri, _plain(answer)))

    async def _post(self, uri: str, body: Mapping[str, Any]) -> bytes:
        """The body of a reply of status 200. Raises _Again, _Settled, Forbidden, httpx's."""
        content = msgspec.json.encode(body)
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        async with self._http.stream(
            "POST", uri, content=content, headers={**headers, **self._headers}
        ) as response:
            _check(response, uri)
            read = b""
            async for chunk in response.aiter_raw():
                read += chunk
                if len(read) > _LONGEST_REPLY:
                    raise _Settled(Broken("BadReply", f"{uri} replied more than 1 MiB"))
        return read


def _check(response: httpx.Response, uri: str) -> None:
    status = response.status_code
    if status == httpx.codes.OK:
        return
    words = f"{uri} replied {status}"
    if status in _MAY_PASS:
        raise _Again(f"Http{status}", words, pause=_retry_after(response))
    if status in _THE_ANSWERS:
        raise _Settled(Unusable(words))
    raise _Settled(Broken(f"Http{status}", words))


def _retry_after(response: httpx.Response) -> float:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdigit() else 0.0


def _pause(state: tenacity.RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome else None
    wait = tenacity.wait_random_exponential(multiplier=_FIRST_PAUSE, max=_LONGEST_PAUSE)
    return max(wait(state), error.pause if isinstance(error, _Again) else 0.0)


def _plain(answer: Answer) -> dict[str, Any]:
    return {
        "prompt": answer.prompt,
        "response": answer.response,
        "reference": msgspec.Raw(answer.reference or b"{}"),
        "task": answer.task,
    }


def _chat(component: JudgeReward, message: str) -> dict[str, Any]:
    return {
        "model": component.model,
        "messages": [{"role": "user", "content": message}],
        "temperature": 0,
        "max_tokens": component.max_tokens,
    }


@asynccontextmanager
async def connected(
    *, allowed: tuple[Network, ...], connections: int
) -> AsyncIterator[httpx.AsyncClient]:
    """A client that goes through the door alone."""
    limits = httpx.Limits(max_connections=connections, max_keepalive_connections=connections)
    door = Door(httpx.AsyncHTTPTransport(limits=limits, trust_env=False), allowed=allowed)
    async with httpx.AsyncClient(
        transport=door,
        follow_redirects=False,
        trust_env=False,
        timeout=None,  # noqa: S113 - the answer's deadline is outside
    ) as http:
        yield http


def keys_of(text: str) -> dict[str, Key]:
    """The administrator's keys; raises Refused without quoting them."""
    try:
        return msgspec.json.decode(text, type=dict[str, Key])
    except msgspec.DecodeError:
        detail = 'EBBTIDE_KEYS is not {"name": {"key": ..., "origin": "https://host"}}'
        raise Refused(detail, field="EBBTIDE_KEYS") from None
