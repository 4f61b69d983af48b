"""A real Prometheus beside a stack, set up by the file that users are given."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from benchmarks.stack import ROOT, Stack, until
from ebbtide.adapters.daemon import free_port

LOCAL = ROOT / "deploy/prometheus/local.yaml"


@dataclass(frozen=True)
class Prometheus:
    """Its HTTP API."""

    http: httpx.Client

    def get(self, path: str, **query: str | float) -> Any:
        answer = self.http.get(f"/api/v1/{path}", params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()["data"]

    def now(self, expr: str) -> dict[tuple[str, ...], float]:
        """Values by labels' values, those of `__name__` included."""
        found = self.get("query", query=expr)["result"]
        return {tuple(one["metric"].values()): float(one["value"][1]) for one in found}

    def value(self, expr: str) -> float:
        """Of a query with one answer; NaN while there is none."""
        return next(iter(self.now(expr).values()), math.nan)

    def ever(self, expr: str, start: float, end: float) -> bool:
        """Whether the query had a finite value at some moment."""
        found = self.get("query_range", query=expr, start=start, end=end, step=1)["result"]
        return any(math.isfinite(float(value)) for one in found for _, value in one["values"])

    def alive(self) -> bool:
        try:
            return self.http.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False


def settings(stack: Stack) -> dict[str, Any]:
    """deploy/prometheus/local.yaml for this stack, with shorter intervals."""
    address = stack.client.url.removeprefix("http://")
    text = LOCAL.read_text("utf-8").replace("127.0.0.1:8470", address)
    text = text.replace("~/.local/state/ebbtide/token", str(stack.state / "token"))
    config: dict[str, Any] = yaml.safe_load(text.replace("5s", "1s"))
    config["rule_files"] = [str(LOCAL.parent / name) for name in config["rule_files"]]
    return config


@contextmanager
def prometheus(stack: Stack, folder: Path) -> Iterator[Prometheus]:
    """Start one that scrapes the stack; end it afterwards."""
    file, port = folder / "prometheus.yaml", free_port()
    file.write_text(yaml.safe_dump(settings(stack)))
    address = f"127.0.0.1:{port}"
    command = ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={folder / 'tsdb'}"]
    command.append(f"--web.listen-address={address}")
    with (folder / "prometheus.log").open("wb") as log:
        try:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        except FileNotFoundError:
            pytest.fail("prometheus is missing: run deploy/prometheus/install.sh as root")
    try:
        with httpx.Client(base_url=f"http://{address}", trust_env=False, timeout=60.0) as http:
            found = Prometheus(http)
            until(found.alive, seconds=30, what="a ready Prometheus")
            yield found
    finally:
        process.terminate()
        process.wait()
