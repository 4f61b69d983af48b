"""`make demo`: trains a small model through all the services, and says what came of it."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

import typer
from rich.console import Console

from ebbtide.cli.ending import guarded
from ebbtide.demo.run import Wishes, demonstrate
from ebbtide.demo.summary import show

ROOT = Path(__file__).resolve().parents[2]
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def wishes_of(arguments: list[str]) -> Wishes:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="make demo", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="of data, model and sampling")
    parser.add_argument("--port", type=int, default=0, help="of the API; 0: any free one")
    parser.add_argument("--learning-rate", type=float, help="0 is the control run")
    parser.add_argument("--steps", type=int, help="of reinforcement")
    parser.add_argument("--engine", choices=("torch", "vllm"), help="of the actors")
    parser.add_argument("--actors", type=int, help="at first, and at most")
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "demo", help="for the report")
    given = parser.parse_args(arguments)
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Wishes(
        out=given.out,
        examples=ROOT / "deploy" / "examples",
        cache=Path(base) / "ebbtide",
        seed=given.seed,
        port=given.port,
        learning_rate=given.learning_rate,
        steps=given.steps,
        engine=given.engine,
        actors=given.actors,
    )


def interruptible() -> None:
    """End in order on a signal, so that the stack ends too; exit codes as shells give them.

    Ctrl-C needs it as well: a shell starts its background jobs with SIGINT ignored.
    """
    for number in _SIGNALS:
        signal.signal(number, _leave)


def _leave(number: int, _: FrameType | None) -> NoReturn:
    for other in _SIGNALS:  # a second one would interrupt the end, which has its own deadline
        signal.signal(other, lambda *_: None)
    raise SystemExit(128 + number)


@guarded
def main(arguments: list[str]) -> None:
    """Run it and show it."""
    interruptible()
    console = Console(highlight=False)
    wishes = wishes_of(arguments)
    figures = demonstrate(wishes, lambda line: console.print(f"[bold]{line}[/]"))
    show(figures, console)
    console.print(f"report: {wishes.out / 'report.html'}")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except typer.Exit as ended:
        sys.exit(ended.exit_code)
