"""Dashboards as values, and Grafana's JSON of them (pure)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

WIDTH, HEIGHT = 24, 8
SCHEMA = 39
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}

JOB = 'namespace="$namespace",rlhf_job="$rlhf_job"'
"""Selector of everything of the chosen job."""


def rate(metric: str, by: str) -> str:
    """Per second, of all of the job's series, by a label."""
    return f"sum by ({by}) (rate({metric}{{{JOB}}}[$__rate_interval]))"


class Query(msgspec.Struct, frozen=True):
    """PromQL with variables, and what each series is called."""

    expr: str
    legend: str = ""


class Panel(msgspec.Struct, frozen=True):
    """One picture. `needs`: why it has no data in a plain run; empty: it has."""

    title: str
    unit: str
    about: str
    queries: tuple[Query, ...]
    kind: str = "timeseries"
    width: int = 8
    needs: str = ""


class Board(msgspec.Struct, frozen=True):
    """One dashboard. `job`: it is of one job; `links`: uids of boards that go on from it."""

    uid: str
    title: str
    about: str
    panels: tuple[Panel, ...]
    links: tuple[str, ...] = ()
    job: bool = True


def panel(
    title: str,
    unit: str,
    about: str,
    *queries: tuple[str, str],
    kind: str = "timeseries",
    width: int = 8,
    needs: str = "",
) -> Panel:
    """A panel from (query, legend) pairs."""
    asked = tuple(Query(expr, legend) for expr, legend in queries)
    return Panel(title, unit, about, asked, kind, width, needs)


def grafana(board: Board, titles: dict[str, str]) -> str:
    """The board's JSON; `titles` of the boards that it links to, by uid."""
    model = {
        "uid": board.uid,
        "title": board.title,
        "description": board.about,
        "tags": ["ebbtide"],
        "schemaVersion": SCHEMA,
        "editable": False,
        "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": list(_variables(job=board.job))},
        "links": [*(_link(uid, titles[uid]) for uid in board.links), *_logs(board)],
        "panels": list(_placed(board.panels)),
    }
    return json.dumps(model, indent=1, ensure_ascii=False) + "\n"


def _variables(*, job: bool) -> Iterator[dict[str, Any]]:
    yield {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Source"}
    yield _query("namespace", "Namespace", "label_values(ebbtide_jobs, namespace)")
    if job:
        jobs = 'label_values(ebbtide_job_state{namespace="$namespace"}, rlhf_job)'
        yield _query("rlhf_job", "Job", jobs)
        gateway = {"name": "gateway", "type": "textbox", "label": "Gateway"}
        yield gateway | {"query": "http://127.0.0.1:8470"}


def _query(name: str, label: str, query: str) -> dict[str, Any]:
    return {
        "name": name,
        "type": "query",
        "label": label,
        "datasource": _SOURCE,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
    }


def _link(uid: str, title: str) -> dict[str, Any]:
    return {
        "type": "link",
        "title": title,
        "url": f"/d/{uid}",
        "includeVars": True,
        "keepTime": True,
    }


def _logs(board: Board) -> list[dict[str, Any]]:
    url = "${gateway}/v1/jobs/${rlhf_job}/logs"
    return [{"type": "link", "title": "Logs", "url": url, "targetBlank": True}] if board.job else []


def _placed(panels: Sequence[Panel]) -> Iterator[dict[str, Any]]:
    x = y = 0
    for number, one in enumerate(panels, start=1):
        if x + one.width > WIDTH:
            x, y = 0, y + HEIGHT
        yield _panel(one, number) | {"gridPos": {"x": x, "y": y, "w": one.width, "h": HEIGHT}}
        x += one.width


def _panel(one: Panel, number: int) -> dict[str, Any]:
    about = f"{one.about} No data: {one.needs}" if one.needs else one.about
    return {
        "id": number,
        "title": one.title,
        "description": about,
        "type": one.kind,
        "datasource": _SOURCE,
        "fieldConfig": {"defaults": {"unit": one.unit}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "expr": query.expr,
                "legendFormat": query.legend,
                "datasource": _SOURCE,
                "instant": one.kind != "timeseries",
            }
            for index, query in enumerate(one.queries)
        ],
    }
