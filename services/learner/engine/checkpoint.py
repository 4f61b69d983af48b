"""Shards of parameters and optimiser by torch.distributed.checkpoint, in local folders.

The format reshards: a checkpoint of two ranks loads on one or on eight. Its index file is a
pickle of the library's own; `read_shards` may only be given files whose digests were verified
against a committed manifest.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save

from ebbtide.errors import Corrupt, Temporary
from services.learner.engine.optimiser import Optimiser


@dataclass(frozen=True)
class Part:
    """A model and the optimiser that moves it."""

    module: torch.nn.Module
    optimiser: Optimiser


def write_shards(folder: Path, policy: Part, critic: Part | None = None) -> None:
    """Write this rank's shards into `folder` (new, its own); all ranks call it together.

    Raises Temporary on every rank if any could not write; the training state is unharmed.
    """
    try:
        save(_state(policy, critic), storage_writer=FileSystemWriter(folder))
    except (CheckpointException, OSError) as error:
        raise Temporary(f"checkpoint shards cannot be written: {_cause(error)}") from error


def read_shards(folder: Path, policy: Part, critic: Part | None = None) -> None:
    """Load the shards of all ranks from `folder`; all ranks call it together."""
    state = _state(policy, critic)
    try:
        load(state, storage_reader=FileSystemReader(folder))
    except (CheckpointException, OSError) as error:
        raise Corrupt(f"checkpoint shards cannot be read: {_cause(error)}") from error
    _set(policy, state)
    if critic is not None:
        _set(critic, state["critic"])


def _set(part: Part, state: dict[str, Any]) -> None:
    set_state_dict(
        part.module,
        part.optimiser.adamw,
        model_state_dict=state["model"],
        optim_state_dict=state["optimiser"],
    )


def _state(policy: Part, critic: Part | None) -> dict[str, Any]:
    model, adamw = get_state_dict(policy.module, policy.optimiser.adamw)
    state: dict[str, Any] = {"model": model, "optimiser": adamw}
    return state if critic is None else {**state, "critic": _state(critic, None)}


def _cause(error: BaseException) -> str:
    """Return the first rank's own failure, without the traceback that the library adds."""
    failures = getattr(error, "failures", None)
    if not failures:
        return str(error)
    rank, (cause, _) = next(iter(failures.items()))
    return f"rank {rank}: {cause}"
