"""Commands about many things at once: samples that are alike, costs of all jobs, all steps."""

# ruff: noqa: PLC0415 - each command imports what it needs when it runs, so that help is fast
from __future__ import annotations

from typing import Annotated

import typer

from ebbtide.cli.ending import guarded

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


@guarded
def samples(
    name: Annotated[str, typer.Argument(help="Name of the job (see `ebbtide list`).")],
    *,
    step: Annotated[int | None, typer.Option(min=0, help="Step [default: the last].")] = None,
    purpose: Annotated[str | None, typer.Option(help="train or eval [default: both].")] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 10,
    by: Annotated[
        list[str] | None,
        typer.Option(help="Group: step, purpose, task, length, prompts, policy, reward, sign."),
    ] = None,
    since: Annotated[int | None, typer.Option(min=0, help="With --by: from this step on.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show prompts, answers and scores of one step; --by: figures of samples that are alike."""
    from ebbtide.cli.slices import Wanted, show

    wanted = Wanted(
        by=by or [], since=since, step=step, purpose=purpose, limit=limit, as_json=as_json
    )
    show(name, wanted)


@guarded
def costs(
    by: Annotated[
        list[str] | None, typer.Option(help="tenant, job, state, label:NAME [default: tenant].")
    ] = None,
    opencost: Annotated[
        bool, typer.Option("--opencost", help="Beside OpenCost's bill, job by job.")
    ] = False,
    days: Annotated[
        float, typer.Option(min=0.01, help="With --opencost: of the last so many days.")
    ] = 1.0,
    as_json: AsJson = False,
) -> None:
    """Show what all jobs cost together, by tenant, label or state."""
    from ebbtide.cli.spending import show_groups, show_reconciliation

    if opencost:
        show_reconciliation(days, as_json=as_json)
    else:
        show_groups(by or ["tenant"], as_json=as_json)


@guarded
def track(
    name: Annotated[str, typer.Argument(help="Name of the job (see `ebbtide list`).")],
    to: Annotated[str, typer.Option(help="tensorboard, mlflow or wandb.")],
    at: Annotated[str, typer.Option(help="Folder; with mlflow also a server's address.")],
) -> None:
    """Tell an experiment tracker of each step, from the first one until the job ends."""
    from ebbtide.cli.track import track_job

    track_job(name, kind=to, where=at)
