"""The profile file: what one actor type can do, in seconds (pure).

`ebbtide profile` measures it, once per engine, GPU and tensor-parallel degree; `decode.profile` of
a job names it; the planner reads it and corrects it with what actors report.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from ebbtide.errors import Refused

Floats = npt.NDArray[np.floating[Any]]

LARGEST_DROP = 0.5
"""A larger batch may be measured faster by noise and kernel shapes, but never by this share."""


class ProfileFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The file; all times in seconds.

    seconds[i][j]: one token of each of batches[i] samples, which hold contexts[j] tokens together.
    startup: by stage, in order.
    """

    version: Literal[1]
    engine: str
    model: str
    gpu: str
    tensor_parallel: int
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    seconds: tuple[tuple[float, ...], ...]
    prefill_seconds_per_token: float
    startup: dict[str, float]
    wake_seconds: float
    catch_up_seconds: float
    kv_tokens: int
    kv_bytes_per_token: int
    handover_bytes_per_second: float


class Step(msgspec.Struct, frozen=True, tag="step"):
    """While it is measured: `done` of `of` points, and what comes next in words."""

    done: int
    of: int
    words: str


class Unfit(msgspec.Struct, frozen=True, tag="unfit"):
    """The job's engine cannot be measured; `field` points into the job."""

    field: str
    detail: str


class Found(msgspec.Struct, frozen=True, tag="found"):
    """What was measured, and the stages of the start-up in its order."""

    profile: ProfileFile


Said = Step | Unfit | Found
"""One line of JSON each, from the process that measures."""


def read_profile_file(data: bytes) -> ProfileFile:
    """Decode a file, not yet checked; raises Refused that says what is wrong."""
    try:
        return msgspec.json.decode(data, type=ProfileFile)
    except msgspec.DecodeError as error:
        raise Refused(f"not a profile of version 1: {error}") from None


def check_profile(file: ProfileFile) -> Floats:
    """Seconds (batches, contexts), lifted to the running maximum.

    Raises Refused that names the field. Measured times that fall as the load rises are noise or
    kernel shapes; a fall by more than half is a mistake of the measurement and is refused.
    """
    _check_axis(file.batches, "batches")
    _check_axis(file.contexts, "contexts")
    _check_numbers(file)
    return rising(_grid(file))


def rising(grid: Floats) -> Floats:
    """The running maximum along both axes."""
    up: Floats = np.maximum.accumulate(np.maximum.accumulate(grid, axis=0), axis=1)
    return up


def _check_axis(axis: tuple[int, ...], name: str) -> None:
    if not axis or axis[0] < (name == "batches") or any(a >= b for a, b in pairwise(axis)):
        raise Refused(f"{name} must rise and start at 1 or more, got {axis}", field=f"/{name}")


def _check_numbers(file: ProfileFile) -> None:
    if file.kv_tokens < 1:
        raise Refused(
            "kv_tokens must be at least 1: the tokens that fit at once", field="/kv_tokens"
        )
    for name in (
        "prefill_seconds_per_token",
        "wake_seconds",
        "catch_up_seconds",
        "kv_bytes_per_token",
        "handover_bytes_per_second",
    ):
        if not 0 <= getattr(file, name) < float("inf"):
            raise Refused(f"{name} must be a finite number, 0 or more", field=f"/{name}")
    if not all(0 <= seconds < float("inf") for seconds in file.startup.values()):
        raise Refused("startup needs finite seconds per stage, 0 or more", field="/startup")


def _grid(file: ProfileFile) -> Floats:
    shape = (len(file.batches), len(file.contexts))
    if len(file.seconds) != shape[0] or any(len(row) != shape[1] for row in file.seconds):
        raise Refused(f"seconds must have {shape[0]} rows of {shape[1]} numbers", field="/seconds")
    grid = np.asarray(file.seconds, float)
    holes = np.argwhere(~(np.isfinite(grid) & (grid > 0)))
    if len(holes):
        i, j = holes[0]
        raise Refused("each point needs positive seconds: measure it", field=f"/seconds/{i}/{j}")
    falls = np.argwhere(grid < rising(grid) * LARGEST_DROP)
    if len(falls):
        i, j = falls[0]
        raise Refused(
            "a smaller load took over twice as long: measure again", field=f"/seconds/{i}/{j}"
        )
    return grid
