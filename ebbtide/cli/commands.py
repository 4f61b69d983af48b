"""The commands: their words, arguments and help. What they do is in the modules beside."""

# ruff: noqa: PLC0415 - each command imports what it needs when it runs, so that help is fast
from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ebbtide.cli import groups
from ebbtide.cli.ending import guarded
from ebbtide.cli.summaries import WholeSummaries

_EPILOG = """\b
Examples:
  ebbtide up                                        start everything on this machine
  ebbtide submit deploy/examples/demo.yaml --watch  run a job and look at it
  ebbtide list --state Running --json               for programs
  ebbtide report demo --out runs/demo               curves and figures as files
  ebbtide COMMAND --help                            more about one command
"""

app = typer.Typer(
    cls=WholeSummaries,
    help="Submit, watch and steer RLHF jobs on ebbtide.",
    epilog=_EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rendering help with rich takes 0.7 s
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)

Name = Annotated[str, typer.Argument(help="Name of the job (see `ebbtide list`).")]
File = Annotated[Path, typer.Argument(help="Job file, YAML or JSON; - reads standard input.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]
State = Annotated[
    Path | None, typer.Option("--state-dir", help="State folder [default: ~/.local/state/ebbtide].")
]


@app.command(epilog="Example: ebbtide up && ebbtide submit job.yaml --watch")
@guarded
def up(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port of the API; 0: any free.")
    ] = 8470,
    state_dir: State = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait until it is ready.")] = 120.0,
    as_json: AsJson = False,
) -> None:
    """Start broker, store, operator and gateway on this machine, in the background."""
    from ebbtide.cli.local import start

    start(port=port, folder=state_dir, timeout=timeout, as_json=as_json)


@app.command(epilog="Example: ebbtide down")
@guarded
def down(
    state_dir: State = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait until all has ended.")] = 60.0,
) -> None:
    """Stop what `ebbtide up` started; jobs keep their checkpoints."""
    from ebbtide.cli.local import stop

    stop(folder=state_dir, timeout=timeout)


@app.command(epilog="Example: ebbtide submit job.yaml --watch")
@guarded
def submit(
    file: File,
    watch: Annotated[
        bool, typer.Option("--watch", help="Then show the job until it ends.")
    ] = False,
    key: Annotated[
        str | None, typer.Option(help="Idempotency key: the same key never makes two jobs.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Submit a job file and print the job's name. Relative paths in it start at its folder."""
    from ebbtide.cli.jobs import submit_file

    submit_file(file, watch=watch, key=key, as_json=as_json)


@app.command(epilog="Example: ebbtide validate job.yaml --estimate")
@guarded
def validate(
    file: File,
    estimate: Annotated[
        bool, typer.Option("--estimate", help="Also say what it would take and cost.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say everything that is wrong with a job file; without a gateway, by the schema alone."""
    from ebbtide.cli.jobs import validate_file

    validate_file(file, estimate=estimate, as_json=as_json)


@app.command("list", epilog="Example: ebbtide list --state Running --label team=a")
@guarded
def list_(
    state: Annotated[
        list[str] | None, typer.Option("--state", help="Only this state; may be repeated.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option("--label", help="Only with key=value; may be repeated.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    as_json: AsJson = False,
) -> None:
    """List jobs, newest first."""
    from ebbtide.cli.jobs import list_jobs

    list_jobs(states=state or [], labels=label or [], limit=limit, as_json=as_json)


@app.command(epilog="Example: ebbtide get demo --json | jq .status")
@guarded
def get(name: Name, as_json: AsJson = False) -> None:
    """Show one job: state, conditions, progress."""
    from ebbtide.cli.jobs import get_job

    get_job(name, as_json=as_json)


@app.command(epilog="Example: ebbtide watch demo && echo it is complete")
@guarded
def watch(name: Name, as_json: AsJson = False) -> None:
    """Show a job live until it ends; exit code 0 only if it is Complete."""
    from ebbtide.cli.watch import watch_job

    watch_job(name, as_json=as_json)


@app.command(epilog="Example: ebbtide logs demo --role planner --follow")
@guarded
def logs(
    name: Name,
    *,
    role: Annotated[
        str | None, typer.Option(help="Only planner, decode, prefill, reward or learner pods.")
    ] = None,
    pod: Annotated[str | None, typer.Option(help="Only this pod.")] = None,
    tail: Annotated[int, typer.Option(min=0, max=10_000, help="Last lines of each pod.")] = 200,
    step: Annotated[int | None, typer.Option(min=0, help="Only this step's lines.")] = None,
    match: Annotated[
        str, typer.Option(help="Of these, only lines with this text: a sample's key, a word.")
    ] = "",
    level: Annotated[str, typer.Option(help="Of these, only this level and graver.")] = "debug",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as lines come.")] = False,
    as_json: AsJson = False,
) -> None:
    """Print the logs of a job's pods, also of pods that have ended."""
    from ebbtide.cli.results import Wanted, show_logs

    wanted = Wanted(match=match, level=level, step=step)
    show_logs(name, role=role, pod=pod, tail=tail, wanted=wanted, follow=follow, as_json=as_json)


@app.command(epilog="Example: ebbtide cost demo --by actor --by cause --csv")
@guarded
def cost(
    name: Name,
    *,
    by: Annotated[
        list[str] | None,
        typer.Option(
            help="role, actor, pool, capacity or cause; repeat for finer [default: role, cause]."
        ),
    ] = None,
    first_step: Annotated[int | None, typer.Option(min=0, help="Only from this step on.")] = None,
    last_step: Annotated[int | None, typer.Option(min=0, help="Only up to this step.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV for spreadsheets.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what a job cost, by role and cause; what no cause explains is `unattributed`."""
    from ebbtide.cli.money import show_cost

    show_cost(
        name,
        by=by or [],
        first_step=first_step,
        last_step=last_step,
        as_json=as_json,
        as_csv=as_csv,
    )


@app.command(epilog="Example: ebbtide explain demo 3")
@guarded
def explain(
    name: Name,
    step: Annotated[
        int | None, typer.Argument(min=0, help="Step [default: the last one committed].")
    ] = None,
    named: Annotated[
        int | None, typer.Option("--step", min=0, help="The same, as `samples` takes it.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say how a step was laid out and why: what was weighed, and what it came to."""
    from ebbtide.cli.explain import one_step, show_decision

    show_decision(name, step=one_step(step, named), as_json=as_json)


@app.command(epilog="Example: ebbtide simulate deploy/scenarios/spot.yaml --out runs/spot")
@guarded
def simulate(
    file: Annotated[Path, typer.Argument(help="Scenario file, YAML or JSON.")],
    *,
    out: Annotated[
        Path | None, typer.Option(help="Folder for report.html and report.json.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, max=1000, help="Instead of the scenario's.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, max=64, help="Processes.")] = 2,
    quick: Annotated[
        bool, typer.Option("--quick", help="No fronts and no savings by cause.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Simulate rollout policies side by side on a scenario: time, cost, pictures.

    A scenario takes minutes; begin with --seeds 3 --quick, about 20 seconds.
    """
    from ebbtide.cli.simulate import simulate_file

    simulate_file(file, out=out, seeds=seeds, workers=workers, quick=quick, as_json=as_json)


@app.command(epilog="Example: ebbtide whatif demo --actors 1 --actors 4 --hour-worth 20")
@guarded
def whatif(
    name: Name,
    *,
    actors: Annotated[
        list[int] | None, typer.Option(min=1, help="So many actors; may be repeated.")
    ] = None,
    actor_price: Annotated[
        float | None, typer.Option(min=0, help="Of an actor an hour [default: as recorded].")
    ] = None,
    held_price: Annotated[
        float | None, typer.Option(min=0, help="Of all other roles an hour, likewise.")
    ] = None,
    hour_worth: Annotated[
        list[float] | None, typer.Option(min=0, help="Value of time; may be repeated.")
    ] = None,
    weight: Annotated[
        list[float] | None, typer.Option("--lambda", help="RLHFless's weight of time, 0..1.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay a job's recorded steps with other actor counts, prices or objectives."""
    from ebbtide.cli.simulate import what_if

    options = {
        "actors": actors or [],
        "actorPrice": actor_price,
        "heldPrice": held_price,
        "hourWorth": hour_worth or [],
        "weights": weight or [],
        "json": as_json,
    }
    what_if(name, options)


app.command(epilog="Example: ebbtide samples demo --by task --by reward")(groups.samples)
app.command(epilog="Example: ebbtide costs --by tenant --by label:team")(groups.costs)
app.command(epilog="Example: ebbtide track demo --to tensorboard --at runs/board")(groups.track)


@app.command(epilog="Example: ebbtide sample demo/3/0/1")
@guarded
def sample(
    key: Annotated[str, typer.Argument(help="JOB/STEP/GROUP/INDEX, as `samples` shows them.")],
    as_json: AsJson = False,
) -> None:
    """Show one sample whole: texts, score parts, advantage, versions, the actors it ran on."""
    from ebbtide.cli.results import show_sample

    show_sample(key, as_json=as_json)


@app.command(epilog="Example: ebbtide checkpoints demo")
@guarded
def checkpoints(name: Name, as_json: AsJson = False) -> None:
    """List a job's committed checkpoints, newest first."""
    from ebbtide.cli.results import show_checkpoints

    show_checkpoints(name, as_json=as_json)


@app.command(epilog="Example: ebbtide report demo --out runs/demo")
@guarded
def report(
    name: Name,
    out: Annotated[Path, typer.Option(help="Folder for report.html and report.json.")],
    as_json: AsJson = False,
) -> None:
    """Write report.html and report.json of a job."""
    from ebbtide.cli.results import write_report

    write_report(name, out, as_json=as_json)


@app.command(epilog="Example: ebbtide cancel demo")
@guarded
def cancel(name: Name, as_json: AsJson = False) -> None:
    """End a job; what it has learned so far stays."""
    from ebbtide.cli.jobs import change

    change("cancel", name, as_json=as_json)


@app.command(epilog="Example: ebbtide suspend demo; ebbtide resume demo")
@guarded
def suspend(name: Name, as_json: AsJson = False) -> None:
    """Let a job save itself and free its pods."""
    from ebbtide.cli.jobs import change

    change("suspend", name, as_json=as_json)


@app.command(epilog="Example: ebbtide resume demo")
@guarded
def resume(name: Name, as_json: AsJson = False) -> None:
    """Let a suspended job go on from its checkpoint."""
    from ebbtide.cli.jobs import change

    change("resume", name, as_json=as_json)


@app.command(epilog="Example: ebbtide delete demo")
@guarded
def delete(
    name: Name,
    force: Annotated[bool, typer.Option("--force", help="Also a job that has not ended.")] = False,
) -> None:
    """Remove an ended job from the list; its checkpoints stay in the blob store."""
    from ebbtide.cli.jobs import delete_job

    delete_job(name, force=force)


_PROFILE = """\b
Example: ebbtide profile job.yaml --out l40s.json
  ebbtide profile job.yaml --out l40s.json --batch 1 --batch 8 --batch 64
                            fewer points, sooner done
  then in the job:          decode: {profile: l40s.json}
"""


@app.command(epilog=_PROFILE)
@guarded
def profile(
    file: File,
    *,
    out: Annotated[Path, typer.Option(help="The profile file to write (JSON).")],
    batch: Annotated[
        list[int] | None,
        typer.Option(
            min=1, help="Samples at once; may be repeated [default: 1, 2, 4, ... decode.slots]."
        ),
    ] = None,
    tokens: Annotated[
        int, typer.Option(min=2, max=100_000, help="Tokens that each sample writes per point.")
    ] = 16,
    as_json: AsJson = False,
) -> None:
    """Measure how fast a job's actors decode on this machine, for the planner.

    Starts the engine that the job asks for (its model, slots, threads, device) in a process of
    its own and measures the time per token by batch and by the context that the batch holds, the
    start-up by stages, prefill, the hand-over of KV between processes, and the loading of another
    policy. Nothing else should run meanwhile. The planner corrects the file with what actors
    report, so measure anew only when engine, model or device change.
    """
    from ebbtide.cli.profile import profile_job

    profile_job(file, out=out, batches=batch or [], tokens=tokens, as_json=as_json)


@app.command(epilog="Example: ebbtide doctor")
@guarded
def doctor(state_dir: State = None, as_json: AsJson = False) -> None:
    """Check this machine and the way to the gateway; each finding names its fix."""
    from ebbtide.cli.doctor import examine

    examine(folder=state_dir, as_json=as_json)
