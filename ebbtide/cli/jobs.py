"""submit, validate, list, get, cancel, suspend, resume, delete."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.text import Text

from ebbtide import status as job_status
from ebbtide.api import Job
from ebbtide.cli import files
from ebbtide.cli.ending import say
from ebbtide.cli.show import console, duration, money, print_json, state, table
from ebbtide.client import Client, Unreachable
from ebbtide.errors import Refused

_OFFLINE = "no gateway answered: only the schema was checked"


def submit_file(file: Path, *, watch: bool, key: str | None, as_json: bool) -> None:
    """Submit, print the name, perhaps watch."""
    document = files.read(file)
    with Client.from_state() as client:
        job = client.submit(document, key=key)
    if not watch:
        print_json(job) if as_json else print(job.name)
        return
    from ebbtide.cli.watch import watch_job  # noqa: PLC0415 - only where it is asked for

    watch_job(job.name, as_json=as_json)


def validate_file(file: Path, *, estimate: bool, as_json: bool) -> None:
    """Ask the gateway for a dry run, or check the schema here."""
    document = files.read(file)
    try:
        with Client.from_state() as client:
            found = client.validate(document, estimate=estimate)
    except (Unreachable, Refused) as error:
        _validate_here(document, as_json=as_json, why=str(error))
        return
    if as_json:
        print_json(found)
        return
    print(f"{file} is valid")
    for remark in found.warnings:
        print(f"  note: {remark.pointer} {remark.detail}")
    if found.estimate:
        from ebbtide.cli.money import show_estimate  # noqa: PLC0415 - only where it is asked for

        show_estimate(found.estimate)


def _validate_here(document: Any, *, as_json: bool, why: str) -> None:
    from ebbtide.spec.check import check  # noqa: PLC0415 - all of the job's schema, only here

    named = document
    if isinstance(document, dict):
        metadata = document.get("metadata", {})
        if isinstance(metadata, dict):
            named = {**document, "metadata": {"name": "unnamed", **metadata}}
    check(named)
    if as_json:
        print_json({"valid": True, "warnings": [{"pointer": "", "detail": _OFFLINE}]})
    else:
        print("valid by the schema")
        say(f"{_OFFLINE} ({why})")


def list_jobs(*, states: list[str], labels: list[str], limit: int, as_json: bool) -> None:
    """A table of jobs."""
    with Client.from_state() as client:
        found = list(islice(_pages(client, states, labels), limit))
    if as_json:
        print_json(found)
        return
    if not found:
        print("no jobs" + (" match" if states or labels else ""))
        return
    rows = [_row(job) for job in found]
    columns = ("NAME", "STATE", "REASON", ">STEP", ">COST", ">AGE")
    console().print(table(columns, rows))


def _pages(client: Client, states: list[str], labels: list[str]) -> Iterator[Job]:
    after: str | None = None
    while True:
        page = client.page(states=states, labels=labels, after=after)
        yield from page.items
        after = page.next
        if after is None:
            return


def _row(job: Job) -> tuple[str, ...]:
    progress = job_status.read(job.status, "progress", job_status.Progress)
    cost = job_status.read(job.status, "cost", job_status.CostStatus)
    total = progress.total_steps or job.spec.get("training", {}).get("totalSteps", 0)
    accrued = money(cost.accrued, cost.currency) if job.status else "-"
    step = f"{progress.step}/{total}"
    return job.name, state(job.state), job.reason, step, accrued, _age(job)


def _age(job: Job) -> str:
    created = datetime.fromisoformat(job.metadata.creation_timestamp)
    return duration((datetime.now(UTC) - created).total_seconds())


def get_job(name: str, *, as_json: bool) -> None:
    """One job with its conditions."""
    with Client.from_state() as client:
        job = client.get(name)
    if as_json:
        print_json(job)
    else:
        console().print(describe(job))


def describe(job: Job) -> RenderableType:
    """What `get` shows."""
    columns = ("NAME", "STATE", "REASON", ">STEP", ">COST", ">AGE")
    parts: list[RenderableType] = [table(columns, [_row(job)])]
    if job.metadata.uid:
        parts.append(Text(f"uid: {job.metadata.uid}"))
    if job.message:
        parts.append(Text(job.message))
    if warning := job_status.read(job.status, "progress", job_status.Progress).warning:
        parts.append(Text(f"warning: {warning}"))
    rows = [
        (c.get("type", ""), c.get("status", ""), c.get("reason", ""), escape(c.get("message", "")))
        for c in job.status.get("conditions", ())
    ]
    if rows:
        heads = ("CONDITION", "STATUS", "REASON", "MESSAGE")
        parts += [Text(), table(heads, rows, folds="MESSAGE")]
    return Group(*parts)


def change(verb: str, name: str, *, as_json: bool) -> None:
    """cancel, suspend or resume."""
    with Client.from_state() as client:
        job: Job = getattr(client, verb)(name)
    if as_json:
        print_json(job)
    else:
        print(f"{name}: asked to {verb}; it is {job.state} now")


def delete_job(name: str, *, force: bool) -> None:
    """Remove the job object."""
    with Client.from_state() as client:
        client.delete(name, force=force)
    print(f"{name}: deleted")
