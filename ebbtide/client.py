"""The SDK: a typed, synchronous client of the gateway.

    with Client.from_state() as client:
        job = client.submit(Path("job.yaml").read_bytes(), media_type="application/yaml")
        for event in client.events(job.name):
            print(event.message)

Every call is idempotent (submissions carry a key), so every call is retried when the gateway
does not answer. Errors carry the problem document.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack
from urllib.parse import quote

import httpx
import msgspec
import tenacity

from ebbtide.api import (
    ApiModel,
    CheckpointList,
    CostReport,
    Event,
    EventList,
    Job,
    JobList,
    LogLine,
    LogList,
    LogQuery,
    Metrics,
    ProblemDocument,
    SampleList,
    SampleWhole,
    StepDecision,
    Validation,
)
from ebbtide.errors import EbbtideError, Refused, Temporary
from ebbtide.locating import locate
from ebbtide.sse import parse_stream

T = TypeVar("T", bound=ApiModel)

YAML = "application/yaml"
JSON = "application/json"
ATTEMPTS = 5
STREAM_ATTEMPTS = 10
_STREAM_SECONDS = 60.0
_RETRIED = (429, 502, 503, 504)


class ApiError(EbbtideError):
    """The gateway refused; `problem` says why (RFC 9457)."""

    def __init__(self, problem: ProblemDocument) -> None:
        super().__init__(problem.detail or problem.title)
        self.problem = problem

    @property
    def status(self) -> int:
        """HTTP status."""
        return self.problem.status

    @property
    def kind(self) -> str:
        """Last part of the problem's type, such as `not-found`."""
        return self.problem.type.rpartition("/")[2]


class Unreachable(Temporary):
    """No gateway answers at the address."""


class _TryAgain(Exception):
    def __init__(self, response: httpx.Response) -> None:
        super().__init__(response.status_code)
        self.response = response


class Client:
    """One connection pool to one gateway. Close it, or use it as a context manager."""

    def __init__(
        self,
        *,
        url: str,
        token: str = "",
        transport: httpx.BaseTransport | None = None,
        timeout: float = 30.0,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        if not token.isascii() or not token.isprintable():
            raise Refused("the token has characters that no token has: copy it anew")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.url = url.rstrip("/")
        try:
            self._http = httpx.Client(
                base_url=self.url, headers=headers, transport=transport, timeout=timeout
            )
        except httpx.InvalidURL as error:
            raise Refused(f"{url} is no address of a gateway: {error}") from None
        self._retrying = tenacity.Retrying(
            stop=tenacity.stop_after_attempt(ATTEMPTS),
            wait=_wait,
            retry=tenacity.retry_if_exception_type((httpx.TransportError, _TryAgain)),
            reraise=True,
            sleep=sleep or tenacity.nap.sleep,
        )

    @classmethod
    def from_state(cls, environ: Mapping[str, str] | None = None, home: Path | None = None) -> Self:
        """A client of the gateway that `locate` finds."""
        address = locate(os.environ if environ is None else environ, home or Path.home())
        return cls(url=address.url, token=address.token)

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    # --- jobs ---------------------------------------------------------------------------------

    def submit(
        self, document: Mapping[str, Any] | bytes, *, media_type: str = JSON, key: str | None = None
    ) -> Job:
        """Create the job. `document`: its values, or bytes of `media_type`.

        The same `key` and document give the same job, however often they are sent.
        """
        headers = {"Idempotency-Key": key or str(uuid.uuid4()), "Content-Type": media_type}
        return self._post("/v1/jobs", Job, headers=headers, content=_body(document))

    def validate(
        self,
        document: Mapping[str, Any] | bytes,
        *,
        media_type: str = JSON,
        estimate: bool = False,
    ) -> Validation:
        """Dry run; raises ApiError with every fault in `problem.errors`.

        With `estimate`: also what the job would take and cost.
        """
        headers = {"Content-Type": media_type}
        more = {"params": {"estimate": "true"}} if estimate else {}
        path = "/v1/jobs:validate"
        return self._post(path, Validation, headers=headers, content=_body(document), **more)

    def jobs(
        self, *, states: Sequence[str] = (), labels: Mapping[str, str] | None = None
    ) -> Iterator[Job]:
        """All jobs, newest first, page by page."""
        wanted = [f"{key}={value}" for key, value in (labels or {}).items()]
        after: str | None = None
        while True:
            page = self.page(states=states, labels=wanted, after=after)
            yield from page.items
            after = page.next
            if after is None:
                return

    def page(
        self,
        *,
        states: Sequence[str] = (),
        labels: Sequence[str] = (),
        after: str | None = None,
        limit: int = 100,
    ) -> JobList:
        """One page of jobs; `labels` are `key=value`."""
        query = {"state": list(states), "label": list(labels), "after": after, "limit": limit}
        return self.read("/v1/jobs", JobList, query)

    def get(self, name: str) -> Job:
        """One job."""
        return self.read(f"{_job(name)}", Job)

    def cancel(self, name: str) -> Job:
        """Ask for the end of the job."""
        return self._post(f"{_job(name)}/cancel", Job)

    def suspend(self, name: str) -> Job:
        """Ask the job to save itself and free its pods."""
        return self._post(f"{_job(name)}/suspend", Job)

    def resume(self, name: str) -> Job:
        """Let a suspended job go on."""
        return self._post(f"{_job(name)}/resume", Job)

    def delete(self, name: str, *, force: bool = False) -> None:
        """Remove an ended job; `force`: any job."""
        self._send("DELETE", f"{_job(name)}", params={"force": str(force).lower()})

    # --- what happened ------------------------------------------------------------------------

    def event_page(self, name: str, *, after: str | None = None) -> EventList:
        """Events after a cursor."""
        return self.read(f"{_job(name)}/events", EventList, {"after": after})

    def events(self, name: str, *, after: str | None = None) -> Iterator[Event]:
        """Events as they happen, until the job ends; a lost connection is taken up again."""
        for _, data in self._follow(f"{_job(name)}/events", {}, after):
            if data:
                yield Event.model_validate_json(data)

    def logs(self, name: str, **query: Unpack[LogQuery]) -> LogList:
        """The last `tail` (200) lines of each pod."""
        return self.read(f"{_job(name)}/logs", LogList, query)

    def follow_logs(self, name: str, **query: Unpack[LogQuery]) -> Iterator[LogLine]:
        """Lines as they come, until the job ends."""
        given = {key: value for key, value in query.items() if value is not None}
        for event, data in self._follow(f"{_job(name)}/logs", given, None):
            if event == "line":
                yield LogLine.model_validate_json(data)

    def metrics(self, name: str) -> list[dict[str, Any]]:
        """Every step report, in step order (ebbtide.reports.StepReport as JSON)."""
        found: list[dict[str, Any]] = []
        after: str | None = "-1"
        while after is not None:
            query = {"after": after, "limit": 1000}
            page = self.read(f"{_job(name)}/metrics", Metrics, query)
            found += page.items
            after = page.next
        return found

    def decision(self, name: str, step: int) -> StepDecision:
        """How a committed step was laid out, and why; ApiError (404) for one that is not."""
        return self.read(f"{_job(name)}/steps/{step}/decision", StepDecision)

    def cost(
        self,
        name: str,
        *,
        by: Sequence[str] = (),
        first_step: int | None = None,
        last_step: int | None = None,
        since: float | None = None,
        until: float | None = None,
    ) -> CostReport:
        """Held time and money in groups (role, actor, pool, capacity, cause), of all or of some steps."""
        steps = {"firstStep": first_step, "lastStep": last_step}
        query = {"by": list(by) or None, "since": since, "until": until, **steps}
        return self.read(f"{_job(name)}/cost", CostReport, query)

    def checkpoints(self, name: str) -> CheckpointList:
        """Committed checkpoints, newest first."""
        return self.read(f"{_job(name)}/checkpoints", CheckpointList)

    def samples(
        self,
        name: str,
        *,
        step: int | None = None,
        purpose: str | None = None,
        after: str | None = None,
        limit: int = 20,
    ) -> SampleList:
        """One page of a step's samples; without `step`, of the last one."""
        query = {"step": step, "purpose": purpose, "after": after, "limit": limit}
        return self.read(f"{_job(name)}/samples", SampleList, query)

    def sample(self, name: str, *, step: int, group: int, index: int, turn: int = 0) -> SampleWhole:
        """One accepted sample whole; ApiError (404) for one that is not."""
        path = f"{_job(name)}/samples/{step}/{group}/{index}"
        return self.read(path, SampleWhole, {"turn": turn})

    # --- transport ----------------------------------------------------------------------------

    def ready(self) -> bool:
        """Whether the gateway answers that it is ready; never raises for a missing one."""
        try:
            return self._http.get("/readyz", timeout=5.0).status_code == httpx.codes.OK
        except httpx.TransportError:
            return False

    def read(self, path: str, kind: type[T], query: Mapping[str, Any] | None = None) -> T:
        """What the API says at `path`; None is left out of `query`."""
        given = {key: value for key, value in (query or {}).items() if value is not None}
        return kind.model_validate_json(self._send("GET", path, params=given).content)

    def _post(self, path: str, kind: type[T], **more: Any) -> T:
        return kind.model_validate_json(self._send("POST", path, **more).content)

    def _send(self, method: str, path: str, **more: Any) -> httpx.Response:
        try:
            return self._retrying(self._send_once, method, path, **more)
        except _TryAgain as error:
            raise _api_error(error.response) from None
        except (httpx.TransportError, UnicodeError) as error:  # of a host that is no name
            raise _unreachable(self.url, error) from None

    def _send_once(self, method: str, path: str, **more: Any) -> httpx.Response:
        response = self._http.request(method, path, **more)
        if response.status_code in _RETRIED:
            raise _TryAgain(response)
        if response.is_error:
            raise _api_error(response)
        return response

    def _follow(
        self, path: str, query: Mapping[str, Any], last: str | None
    ) -> Iterator[tuple[str, str]]:
        """(event, data) of a stream up to its `end`, over any number of connections."""
        failures = 0
        while True:
            try:
                for event, data, ident in self._stream(path, query, last):
                    failures, last = 0, ident or last
                    yield event, data
                    if event == "end":
                        return
                lost: Exception = httpx.RemoteProtocolError("the stream ended early")
            except (httpx.TransportError, _TryAgain) as error:
                lost = error
            failures += 1
            if failures >= STREAM_ATTEMPTS:
                raise _unreachable(self.url, lost) from None
            self._retrying.sleep(min(0.1 * 2**failures, 5.0))

    def _stream(
        self, path: str, query: Mapping[str, Any], last: str | None
    ) -> Iterator[tuple[str, str, str]]:
        headers = {"Accept": "text/event-stream"}
        if last:
            headers["Last-Event-ID"] = last
        with self._http.stream(
            "GET", path, params=dict(query), headers=headers, timeout=_STREAM_SECONDS
        ) as response:
            if response.status_code == httpx.codes.NO_CONTENT:
                yield "end", "", ""
                return
            if response.is_error:
                response.read()
                raise (
                    _TryAgain(response)
                    if response.status_code in _RETRIED
                    else _api_error(response)
                )
            yield from parse_stream(response.iter_lines())


def _job(name: str) -> str:
    return f"/v1/jobs/{quote(name, safe='')}"


def _body(document: Mapping[str, Any] | bytes) -> bytes:
    return document if isinstance(document, bytes) else msgspec.json.encode(document)


def _wait(state: tenacity.RetryCallState) -> float:
    """Seconds before the next try: what the server asks for, or longer each time."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, _TryAgain):
        asked = error.response.headers.get("retry-after", "")
        if asked.isdigit():
            return min(float(asked), 30.0)
    return float(tenacity.wait_random_exponential(multiplier=0.2, max=5.0)(state))


def _api_error(response: httpx.Response) -> ApiError:
    try:
        problem = ProblemDocument.model_validate_json(response.content)
    except ValueError:
        detail = f"{response.request.url} is no ebbtide gateway: it answered {response.status_code}"
        problem = ProblemDocument(
            type="about:blank", title="Error", status=response.status_code, detail=detail
        )
    return ApiError(problem)


def _unreachable(url: str, error: Exception) -> Unreachable:
    if isinstance(error, httpx.ReadTimeout):  # what it was asked may have been done
        return Unreachable(f"the gateway at {url} took the request and did not answer in time")
    hint = "start one with `ebbtide up`, or set EBBTIDE_URL"
    return Unreachable(f"no gateway answers at {url} ({type(error).__name__}): {hint}")
