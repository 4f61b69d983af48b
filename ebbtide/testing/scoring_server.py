"""A server that scores and judges, as a process: `python -m ebbtide.testing.scoring_server`.

Prints its port. Does what the answer says: a number is its score, a word is a fault; `busy N` is
refused N times first. `GET /seen` tells the requests.
"""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

_STATUS = {"denied": 401, "lost": 404, "wrong": 422, "broken": 500, "redirect": 307}


class Handler(BaseHTTPRequestHandler):
    """Answers by what is asked."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[list[dict[str, Any]]] = []
    counts: ClassVar[Counter[str]] = Counter()

    def do_GET(self) -> None:
        """What was asked so far."""
        self._reply(200, json.dumps(self.seen).encode())

    def do_POST(self) -> None:
        """One score."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append({"path": self.path, "body": body, "headers": dict(self.headers)})
        chat = self.path.endswith("/chat/completions")
        word = body["messages"][0]["content"].rpartition("A: ")[2] if chat else body["response"]
        self.counts[word] += 1
        status, reply = self._answer(word)
        if status == 200 and chat:
            reply = json.dumps({"choices": [{"message": {"content": word}}]}).encode()
        self._reply(status, reply)

    def _answer(self, word: str) -> tuple[int, bytes]:
        head, _, number = word.partition(" ")
        if head == "busy":
            return (429, b"") if self.counts[word] <= int(number) else (200, b'{"score": 1}')
        if head == "slow":
            time.sleep(float(number))
        if head == "flood":
            return 200, b"[" * (2 << 20)
        if head == "text":
            return 200, b'{"score": "high"}'
        return _STATUS.get(head, 200), json.dumps({"score": _number(word)}).encode()

    def _reply(self, status: int, body: bytes) -> None:
        self.send_response(status)
        if status == 307:
            self.send_header("Location", "/elsewhere")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Say nothing."""


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return 0.0


def main() -> None:
    """Serve until killed."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    sys.stdout.write(f"{server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
