"""Dashboards as code: `make generate` writes deploy/dashboards from them (pure)."""

from __future__ import annotations

from ebbtide.dashboards.base import Board, Panel, Query, grafana
from ebbtide.dashboards.platform import FLEET, OPERATOR
from ebbtide.dashboards.results import COST, LEARNING
from ebbtide.dashboards.transfer import KV, WEIGHTS
from ebbtide.dashboards.work import JOB_BOARD, POOL

__all__ = ["BOARDS", "Board", "Panel", "Query", "dashboards"]

BOARDS = (FLEET, JOB_BOARD, POOL, KV, WEIGHTS, COST, LEARNING, OPERATOR)


def dashboards() -> dict[str, str]:
    """Grafana's JSON by file name."""
    titles = {board.uid: board.title for board in BOARDS}
    return {f"{board.uid}.json": grafana(board, titles) for board in BOARDS}
