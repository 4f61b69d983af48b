"""costs: all jobs by tenant, label or state, and beside OpenCost's bill."""

from __future__ import annotations

import time

from ebbtide.api import CostGroup, CostGroupList, Reconciled, Reconciliation
from ebbtide.cli.show import console, duration, money, print_json, table
from ebbtide.client import Client

_DAY = 86400.0


def show_groups(by: list[str], *, as_json: bool) -> None:
    """Held time and money in groups of jobs."""
    with Client.from_state() as client:
        found = client.read("/v1/costs", CostGroupList, {"by": by})
    if as_json:
        print_json(found)
        return
    columns = (*map(str.upper, found.by), ">JOBS", ">HELD", ">COST")
    console().print(table(columns, [_group(one, found.by) for one in found.items]))


def _group(one: CostGroup, by: list[str]) -> tuple[str, ...]:
    places = (one.key[key] or "none" for key in by)
    return (*places, str(one.jobs), duration(one.held_seconds), total(one))


def total(one: CostGroup) -> str:
    """What the group cost; of jobs without a price, how many are missing in the sum."""
    if one.total is not None or one.unpriced_jobs >= one.jobs:
        return money(one.total, one.currency)
    missing = f"{one.unpriced_jobs} job{'s' if one.unpriced_jobs != 1 else ''} without a price"
    return f"{money(one.known, one.currency)} + {missing}"


def show_reconciliation(days: float, *, as_json: bool) -> None:
    """Both bills of each job that was held in the last `days`."""
    now = time.time()
    window = {"since": now - days * _DAY, "until": now}
    with Client.from_state() as client:
        found = client.read("/v1/costs/opencost", Reconciliation, window)
    if as_json:
        print_json(found)
        return
    out = console()
    out.print(table(("JOB", ">HELD", ">OURS", ">OPENCOST", ""), map(_reconciled, found.items)))
    if found.strangers:
        out.print(f"\nOpenCost knows {len(found.strangers)} jobs that are not stored any more")


def _reconciled(one: Reconciled) -> tuple[str, ...]:
    word = {True: "agree", False: "differ", None: ""}[one.agree]
    ours, theirs = money(one.ours, one.currency), money(one.theirs, one.currency)
    return (one.job, duration(one.held_seconds), ours, theirs, word)
