"""`ebbtide watch`: a job live, driven by its event stream."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from ebbtide import status as job_status
from ebbtide.api import Event
from ebbtide.cli.ending import FAILED, say
from ebbtide.cli.show import duration, money, print_json_line, state
from ebbtide.client import Client
from ebbtide.last_words import sentence

PHASES = ("plan", "sync", "decode", "score", "learn")
_COLOURS = {
    "plan": "grey50",
    "sync": "blue",
    "decode": "green",
    "score": "yellow",
    "learn": "magenta",
}
_BAR = 40
_STATES = frozenset({"Running", "Suspended", "Complete", "Draining"})
"""What the operator notes of a condition that has no words of its own."""
_NOTES = 4


class Watched(msgspec.Struct, frozen=True):
    """What is known of a job from its events so far."""

    name: str
    state: str = "Pending"
    reason: str = ""
    message: str = ""
    status: Mapping[str, Any] = {}
    step: Mapping[str, Any] = {}
    rewards: tuple[float, ...] = ()
    evals: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    notes: tuple[str, ...] = ()
    ended: bool = False

    @property
    def warning(self) -> str:
        """What the planner finds odd with the data, or empty."""
        return job_status.read(self.status, "progress", job_status.Progress).warning

    def take(self, event: Event) -> Watched:
        """With one event more."""
        replace = msgspec.structs.replace
        match event.type:
            case "step":
                return replace(
                    self,
                    step=event.data,
                    rewards=(*self.rewards, *_mean(event.data, "rewards")),
                    evals=(*self.evals, *_mean(event.data, "evaluation")),
                    losses=(*self.losses, *_loss(event.data)),
                )
            case "note" if not says_the_state(event):
                return replace(self, notes=(*self.notes, note_line(event))[-_NOTES:])
            case "progress" | "end":
                return replace(
                    self,
                    state=event.data.get("state", self.state),
                    status=event.data.get("status", self.status),
                    reason=event.reason,
                    message=event.message,
                    ended=event.type == "end",
                )
        return self


def _mean(report: Mapping[str, Any], field: str) -> tuple[float, ...]:
    mean = (report.get(field) or {}).get("mean")
    return () if mean is None else (float(mean),)


def _loss(report: Mapping[str, Any]) -> tuple[float, ...]:
    """Of the update, where the learner said one."""
    loss = _figure(report, "loss")
    return () if loss is None else (float(loss),)


def _figure(report: Mapping[str, Any], name: str) -> float | None:
    """One of the learner's own."""
    found: float | None = ((report.get("learner") or {}).get("stats") or {}).get(name)
    return found


def watch_job(name: str, *, as_json: bool) -> None:
    """Show events until the end; ends with 0 only for a Complete job."""
    with Client.from_state() as client:
        events = client.events(name)
        if as_json:
            last = _as_lines(name, events)
        elif sys.stdout.isatty():
            last = _live(name, events)
        else:
            last = as_text(name, events)
    finish(last)


def finish(last: Watched) -> NoReturn:
    """Say how the job ended, and end with 0 only for a Complete one."""
    if last.state == "Complete":
        raise typer.Exit(0)
    failure = last.status.get("lastFailure") or {}
    say(f"{last.name} is {last.state}: {last.reason} {last.message}".rstrip())
    said = sentence(failure.get("message") or "")
    if said and said not in last.message:
        say(f"last failure, {failure.get('role')} {failure.get('pod')}: {said}")
    raise typer.Exit(FAILED)


def _as_lines(name: str, events: Iterable[Event]) -> Watched:
    last = Watched(name)
    for event in events:
        last = last.take(event)
        print_json_line(event)
    return last


def as_text(name: str, events: Iterable[Event]) -> Watched:
    """For pipes and logs: a line for each change of state and each step."""
    last = Watched(name)
    for event in events:
        new = last.take(event)
        if new.state != last.state:
            print(f"{name}: {new.state} {new.reason} {new.message}".rstrip(), flush=True)
        if event.type == "step":
            print(f"{name}: {step_line(event.data)}", flush=True)
        if event.type == "note" and not says_the_state(event):
            print(f"{name}: {note_line(event)}", flush=True)
        if new.warning != last.warning:
            print(f"{name}: warning: {new.warning}", flush=True)
        last = new
    return last


def says_the_state(event: Event) -> bool:
    """Whether a note says nothing but the state that the job's own line says too."""
    return event.message in _STATES


def note_line(event: Event) -> str:
    """What the operator noted, in one line."""
    count = event.data.get("count", 1)
    return f"{event.reason}: {event.message}" + (f" ({count} times)" if count > 1 else "")


def step_line(report: Mapping[str, Any]) -> str:
    """One step in one line."""
    parts = [f"step {report.get('step')}", f"{report.get('seconds', 0.0):.1f} s"]
    for label, field in (("reward", "rewards"), ("eval", "evaluation")):
        parts += [f"{label} {mean:.3f}" for mean in _mean(report, field)]
    if report.get("kind") == "sft":
        parts += [f"loss {loss:.4f}" for loss in _loss(report)]
    parts.append(f"{tokens_per_second(report):.0f} tokens/s")
    return ", ".join(parts)


def tokens_per_second(report: Mapping[str, Any]) -> float:
    """Tokens of a step per second of it: of the answers, or those that a supervised step learnt."""
    seconds = float(report.get("seconds") or 0.0)
    tokens = (report.get("tokens") or {}).get("response")
    if report.get("kind") == "sft":
        tokens = _figure(report, "computed_tokens")
    tokens = float(tokens or 0.0)
    return tokens / seconds if seconds else 0.0


def _live(name: str, events: Iterable[Event]) -> Watched:
    last = Watched(name)
    start = time.monotonic()

    def now() -> RenderableType:
        return panel(last, time.monotonic() - start)

    # Its own thread draws once a second, so that a slow start is seen to be one.
    with Live(console=Console(highlight=False), get_renderable=now, refresh_per_second=1) as live:
        for event in events:
            last = last.take(event)
            live.refresh()
    return last


def panel(job: Watched, seconds: float) -> RenderableType:
    """The live table."""
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column()
    for label, value in _rows(job):
        grid.add_row(label, value)
    head = Text.from_markup(f"[bold]{job.name}[/]  {state(job.state)}  {job.reason}")
    head.append(f"   watched for {duration(seconds)}", style="dim")
    notes = Text("\n".join(job.notes), style="dim")
    return Group(head, Text(job.message), grid, notes)


def _rows(job: Watched) -> Iterable[tuple[str, RenderableType]]:
    progress = job_status.read(job.status, "progress", job_status.Progress)
    cost = job_status.read(job.status, "cost", job_status.CostStatus)
    if job.warning:
        yield "warning", job.warning
    yield "steps", _bar(progress.step, progress.total_steps)
    yield "phase", progress.phase or "-"
    if job.rewards:
        yield "reward", f"{job.rewards[-1]:.3f}   {sparkline(job.rewards)}"
    if job.losses and not job.rewards:
        yield "loss", f"{job.losses[-1]:.4f}   {sparkline(job.losses)}"
    if job.evals:
        yield "held-out", f"{job.evals[-1]:.3f} from {job.evals[0]:.3f}   {sparkline(job.evals)}"
    for role in job.status.get("roles", ()):
        yield f"{role.get('name')} pods", _role(role)
    if job.step:
        yield "last step", f"{duration(job.step.get('seconds', 0.0))}   {_rate(job.step)}"
        yield "", phase_bar(job.step.get("phases") or {})
    yield "cost", money(cost.accrued, cost.currency)


def _bar(step: int, total: int) -> RenderableType:
    grid = Table.grid(padding=(0, 1))
    grid.add_row(ProgressBar(total=max(1, total), completed=step, width=_BAR), f"{step}/{total}")
    return grid


def _role(role: Mapping[str, Any]) -> str:
    words = [f"{role.get('ready', 0)} of {role.get('desired', 0)} ready"]
    words += [
        f"{role[kind]} {kind}" for kind in ("pending", "draining", "failed") if role.get(kind)
    ]
    return ", ".join(words)


def _rate(report: Mapping[str, Any]) -> str:
    return f"{tokens_per_second(report):.0f} tokens/s"


def phase_bar(phases: Mapping[str, float]) -> RenderableType:
    """A step's time by phase, as a bar with a legend."""
    total = sum(float(phases.get(name, 0.0)) for name in PHASES)
    bar, legend = Text(), Text()
    for name in PHASES:
        share = float(phases.get(name, 0.0))
        if total and share:
            bar.append("█" * max(1, round(_BAR * share / total)), style=_COLOURS[name])
            legend.append(f"{name} {share:.2f} s  ", style=_COLOURS[name])
    return Group(bar, legend)


def sparkline(values: tuple[float, ...], width: int = 40) -> str:
    """The last `width` values as blocks, from their lowest to their highest."""
    shown = values[-width:]
    low, high = min(shown), max(shown)
    blocks = "▁▂▃▄▅▆▇█"
    span = (high - low) or 1.0
    return "".join(blocks[round((value - low) / span * (len(blocks) - 1))] for value in shown)
