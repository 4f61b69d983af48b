"""A receiver of spans that knows OTLP by OpenTelemetry's own library."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2 as trace_service


def ids_in_base64(body: Any) -> None:
    """In place; the receiver's own library then checks every name and type."""
    for part in body["resourceSpans"]:
        for span in (span for scope in part["scopeSpans"] for span in scope["spans"]):
            for name in ("traceId", "spanId", "parentSpanId"):
                span[name] = base64.b64encode(bytes.fromhex(span[name])).decode()


@contextmanager
def receiver(status: int = 200) -> Iterator[tuple[str, list[tuple[str, Any]]]]:
    """Its address, and (service, span) of everything that it was sent."""
    got: list[tuple[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/json")
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            # OTLP writes ids in hex where protobuf's JSON has base64; all else is protobuf's.
            ids_in_base64(body)
            sent = json_format.ParseDict(body, trace_service.ExportTraceServiceRequest())
            for part in sent.resource_spans:
                named = {a.key: a.value.string_value for a in part.resource.attributes}
                spans = [span for scope in part.scope_spans for span in scope.spans]
                got.extend((named["service.name"], span) for span in spans)
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/v1/traces", got
        finally:
            server.shutdown()
            thread.join()
