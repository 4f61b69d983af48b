"""A scorer over HTTP that is away at first."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@contextmanager
def away_at_first(times: int) -> Iterator[str]:
    """Its address. The first `times` answers are refused for now; each further one scores 1."""
    asked = itertools.count()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            away = next(asked) < times
            body = b"" if away else b'{"score": 1.0}'
            self.send_response(HTTPStatus.SERVICE_UNAVAILABLE if away else HTTPStatus.OK)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        request_queue_size = 256  # all answers of a step may be asked about at once

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
