"""Exports spans by OTLP over HTTP in its JSON form, from a thread of its own.

By the standard library alone: OpenTelemetry's SDK takes half a second of CPU to import, and each
actor that starts for a while would pay for it.
"""

from __future__ import annotations

import math
import threading
import time
import urllib.error
import urllib.request
from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

import msgspec

from ebbtide.errors import Refused
from ebbtide.tracing import NO_SPANS, Span, Spans

_SECONDS = 5.0
PAUSE = 5.0
"""Spans of so long (s) go out together: each request takes processor time from the work."""
_QUEUED, _TOGETHER = 8192, 512
"""Spans that wait; more are dropped, for work never waits for its picture. Spans of a request."""
_INTERNAL = 1


class OtlpSpans:
    """Sends spans to `url`; what the receiver does not take is dropped."""

    on = True

    def __init__(self, url: str, *, pause: float = PAUSE) -> None:
        self._url, self._pause = url, pause
        self._waiting: deque[Span] = deque()
        self._there, self._closing = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="spans", daemon=True)
        self._thread.start()

    def add(self, span: Span) -> None:
        """Queue it."""
        if len(self._waiting) < _QUEUED:
            self._waiting.append(span)
            self._there.set()

    def close(self) -> None:
        """Send what waits."""
        self._closing.set()
        self._there.set()
        self._thread.join(2 * _SECONDS)

    def _run(self) -> None:
        closing = False
        while not closing:
            self._there.wait()
            self._there.clear()
            closing = self._closing.wait(self._pause)
            self._send_all()

    def _send_all(self) -> None:
        deadline = time.monotonic() + _SECONDS
        while self._waiting and time.monotonic() < deadline:
            some = [self._waiting.popleft() for _ in range(min(_TOGETHER, len(self._waiting)))]
            self._send(document(some))

    def _send(self, body: bytes) -> None:
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(self._url, body, headers, method="POST")  # noqa: S310 - http(s), see open_spans
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:  # noqa: S310 - as above
                answer.read()
        except (urllib.error.URLError, OSError):
            return  # dropped: whoever wants the picture sees that it has a gap


def open_spans(url: str) -> Spans:
    """Spans go to `url`, such as http://collector:4318/v1/traces; empty: nowhere."""
    if not url:
        return NO_SPANS
    if not url.startswith(("http://", "https://")):
        raise Refused(f"{url} is no http(s) address of a receiver", field="EBBTIDE_OTLP_URL")
    return OtlpSpans(url)


def document(spans: Sequence[Span]) -> bytes:
    """The request's body: an ExportTraceServiceRequest as OTLP 1.x writes it in JSON."""
    roles: defaultdict[str, list[Span]] = defaultdict(list)
    for span in spans:
        roles[span.role].append(span)
    parts = [
        {
            "resource": {"attributes": [_attribute("service.name", f"ebbtide-{role}")]},
            "scopeSpans": [{"scope": {"name": "ebbtide"}, "spans": list(map(_span, own))}],
        }
        for role, own in roles.items()
    ]
    return msgspec.json.encode({"resourceSpans": parts})


def _span(span: Span) -> dict[str, Any]:
    return {
        "traceId": span.trace.hex(),
        "spanId": span.id.hex(),
        "parentSpanId": span.parent.hex(),
        "name": span.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(round(span.start * 1e9)),
        "endTimeUnixNano": str(round(span.end * 1e9)),
        "attributes": [_attribute(key, value) for key, value in span.attributes.items()],
    }


def _attribute(key: str, value: str | float) -> dict[str, Any]:
    """64-bit integers are strings in protobuf's JSON, and so are numbers that are not finite."""
    if isinstance(value, str):
        return {"key": key, "value": {"stringValue": value}}
    if isinstance(value, int):
        return {"key": key, "value": {"intValue": str(value)}}
    number = value if math.isfinite(value) else _words(value)
    return {"key": key, "value": {"doubleValue": number}}


def _words(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"
