"""Experiment trackers, each by an extra of its own."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from ebbtide.errors import Refused
from ebbtide.tracking import KINDS, TrackedRun, Tracker

_MODULES = {"tensorboard": "board", "mlflow": "flow", "wandb": "weights"}


def open_tracker(kind: str, where: str, run: TrackedRun) -> Tracker:
    """The tracker `kind` for one job; raises Refused for one that is not known or installed.

    `where`: a folder; for mlflow a tracking address as well.
    """
    if kind not in _MODULES:
        raise Refused(f"--to must be one of {', '.join(KINDS)}, not {kind}")
    try:
        module = import_module(f"ebbtide.adapters.trackers.{_MODULES[kind]}")
    except ImportError as error:
        hint = f"{kind} is not installed: pip install 'ebbtide[{kind}]'"
        raise Refused(f"{hint} ({error})") from error
    opened: Tracker = module.open_run(where, run)
    return opened


def folder(where: str) -> Path:
    """`where` as a folder that is there; raises Refused."""
    path = Path(where)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refused(f"cannot write into {path}: {error.strerror}") from None
    return path
