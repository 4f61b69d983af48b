"""Whoever looks at the side that is on: takes its spans, and scrapes it as Prometheus does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

from benchmarks.stack import Stack

SCRAPE_SECONDS = 5.0
"""As in deploy/prometheus/local.yaml."""


class Receiver:
    """`url` takes OTLP in JSON. Counts spans, and processes that answered a scrape."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.spans = self.scrapes = 0

    def take(self, body: bytes) -> None:
        """Count the spans of one request."""
        for part in json.loads(body)["resourceSpans"]:
            self.spans += sum(len(scope["spans"]) for scope in part["scopeSpans"])

    @contextmanager
    def scraping(self, stack: Stack) -> Iterator[None]:
        """Scrape all that the gateway names, and its figures of jobs, in a thread of its own."""
        over = threading.Event()

        def scrape() -> None:
            token = (stack.state / "token").read_text().strip()
            headers = {"Authorization": f"Bearer {token}"}
            with httpx.Client(trust_env=False, headers=headers) as http:
                while not over.wait(SCRAPE_SECONDS):
                    self._scrape(http, stack.client.url)

        thread = threading.Thread(target=scrape, name="scraper")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _scrape(self, http: httpx.Client, url: str) -> None:
        http.get(f"{url}/v1/metrics").raise_for_status()
        for target in http.get(f"{url}/v1/targets").raise_for_status().json():
            for address in target["targets"]:
                try:
                    answer = http.get(f"http://{address}/metrics")
                except httpx.TransportError:
                    continue  # a pod that has just ended
                self.scrapes += answer.is_success and "ebbtide_" in answer.text


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver that listens."""
    found: list[Receiver] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            found[0].take(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        found.append(Receiver(f"http://127.0.0.1:{server.server_port}/v1/traces"))
        thread = threading.Thread(target=server.serve_forever, name="receiver")
        thread.start()
        try:
            yield found[0]
        finally:
            server.shutdown()
            thread.join()
