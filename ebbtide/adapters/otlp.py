"""Exports spans by OTLP over HTTP, in the background (OpenTelemetry's SDK; extra `tracing`)."""

from __future__ import annotations

from functools import lru_cache

from ebbtide.errors import Refused
from ebbtide.tracing import NO_SPANS, Span, Spans

try:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
    from opentelemetry.trace import SpanContext, TraceFlags
except ImportError as error:
    raise Refused(
        f"traces need the extra `tracing`: pip install 'ebbtide[tracing]' ({error})",
        field="EBBTIDE_OTLP_URL",
    ) from error

_SECONDS = 5
_QUEUED = 8192
"""Spans that wait; more are dropped, for work never waits for its picture."""


class OtlpSpans:
    """Sends spans to `exporter` from a thread of its own."""

    on = True

    def __init__(self, exporter: SpanExporter) -> None:
        self._processor = BatchSpanProcessor(exporter, max_queue_size=_QUEUED)

    def add(self, span: Span) -> None:
        """Queue it."""
        self._processor.on_end(_readable(span))

    def close(self) -> None:
        """Send what waits."""
        self._processor.shutdown()  # type: ignore[no-untyped-call] # the library gives no types here


def open_spans(url: str) -> Spans:
    """Spans go to `url`, such as http://collector:4318/v1/traces; empty: nowhere."""
    return OtlpSpans(OTLPSpanExporter(endpoint=url, timeout=_SECONDS)) if url else NO_SPANS


def _readable(span: Span) -> ReadableSpan:
    return ReadableSpan(
        name=span.name,
        context=_context(span.trace, span.id),
        parent=_context(span.trace, span.parent) if span.parent else None,
        resource=_resource(span.role),
        attributes=dict(span.attributes),
        start_time=round(span.start * 1e9),
        end_time=round(span.end * 1e9),
    )


def _context(trace: bytes, own: bytes) -> SpanContext:
    return SpanContext(
        int.from_bytes(trace),
        int.from_bytes(own),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


@lru_cache
def _resource(role: str) -> Resource:
    return Resource({"service.name": f"ebbtide-{role}"})
