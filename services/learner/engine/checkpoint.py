"""Shards of parameters and optimiser by torch.distributed.checkpoint, in local folders.

The format reshards: a checkpoint of two ranks loads on one or on eight. Its index file is a
pickle of the library's own; `read_shards` may only be given files whose digests were verified
against a committed manifest.
"""

from __future__ import annotations

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


def write_shards(folder: Path, module: torch.nn.Module, optimiser: Optimiser) -> None:
    """Write this rank's shards into `folder` (new, its own); all ranks call it together.

    Raises Temporary on every rank if any could not write; the training state is unharmed.
    """
    try:
        save(_state(module, optimiser), storage_writer=FileSystemWriter(folder))
    except (CheckpointException, OSError) as error:
        raise Temporary(f"checkpoint shards cannot be written: {_cause(error)}") from error


def read_shards(folder: Path, module: torch.nn.Module, optimiser: Optimiser) -> None:
    """Load the shards of all ranks from `folder`; all ranks call it together."""
    state = _state(module, optimiser)
    try:
        load(state, storage_reader=FileSystemReader(folder))
    except (CheckpointException, OSError) as error:
        raise Corrupt(f"checkpoint shards cannot be read: {_cause(error)}") from error
    set_state_dict(
        module,
        optimiser.adamw,
        model_state_dict=state["model"],
        optim_state_dict=state["optimiser"],
    )


def _state(module: torch.nn.Module, optimiser: Optimiser) -> dict[str, Any]:
    model, adamw = get_state_dict(module, optimiser.adamw)
    return {"model": model, "optimiser": adamw}


def _cause(error: BaseException) -> str:
    """Return the first rank's own failure, without the traceback that the library adds."""
    failures = getattr(error, "failures", None)
    if not failures:
        return str(error)
    rank, (cause, _) = next(iter(failures.items()))
    return f"rank {rank}: {cause}"
