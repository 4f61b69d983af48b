"""How a job wants its steps laid out, and what is known of its actors before they report (pure)."""

from __future__ import annotations

import msgspec

from ebbtide.profiles import ProfileFile
from ebbtide.spec import RLHFJobSpec
from ebbtide.spec.roles import DecodeSpec
from services.planner.core.lengths import Lengths, make_lengths
from services.planner.core.planning.assignment import Kind

_BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_TORCH_SECONDS, _TORCH_PER_SAMPLE = 0.010, 0.0002
_UNKNOWN_START, _UNKNOWN_WAKE = 10.0, 2.0
_UNBOUNDED = 1 << 40


class Steering(msgspec.Struct, frozen=True):
    """As in the job's `spec.planner` and `spec.decode`.

    `measured`: the profile is a file of the user's; a built-in one is scaled to the first reports.
    """

    prediction: str = "blend"
    window: int = 1
    assignment: Kind = "unequal"
    elastic: bool = False
    minimum: int = 0
    maximum: int = 64
    hysteresis: float = 0.05
    horizon: int = 3
    parked: int = 0
    auto_prefill: bool = False
    migration: str = "none"
    tau: float = 0.7
    profile: ProfileFile = msgspec.field(
        default_factory=lambda: straight_profile("unknown", first=0.01, more=0.0002)
    )
    measured: bool = False


def steer(spec: RLHFJobSpec, profile: ProfileFile | None) -> Steering:
    """`profile`: the file at `decode.profile`; None: the built-in curve of the engine."""
    planner, decode = spec.planner, spec.decode
    return Steering(
        prediction=planner.prediction,
        window=planner.window,
        assignment=planner.assignment,
        elastic=planner.scaling == "elastic",
        minimum=decode.min_replicas,
        maximum=decode.max_replicas,
        hysteresis=planner.hysteresis,
        horizon=planner.horizon_steps,
        parked=planner.parked,
        auto_prefill=spec.prefill.mode == "auto",
        migration=planner.migration or ("benefit" if planner.scaling == "elastic" else "none"),
        tau=planner.tau,
        profile=profile or builtin_profile(decode),
        measured=profile is not None,
    )


def lengths_of(spec: RLHFJobSpec) -> Lengths:
    """The predictor that the job asks for, before any answer."""
    limit = spec.training.max_response_tokens
    return make_lengths(spec.planner.prediction, limit=limit, window=spec.planner.window)


def builtin_profile(decode: DecodeSpec) -> ProfileFile:
    """A curve of the engine's shape: exact for the emulated one, a guess for a real one."""
    if decode.engine != "emulated":
        return straight_profile(decode.engine, first=_TORCH_SECONDS, more=_TORCH_PER_SAMPLE)
    numbers = decode.emulation
    return straight_profile(
        decode.engine,
        first=max(numbers.tpot_ms / 1000, 1e-6),
        more=numbers.tpot_per_row_ms / 1000,
        prefill=numbers.prefill_ms_per_token / 1000,
    )


def straight_profile(
    engine: str,
    *,
    first: float,
    more: float,
    start: float = _UNKNOWN_START,
    prefill: float = 0.0,
    wake: float = _UNKNOWN_WAKE,
) -> ProfileFile:
    """`first` seconds a token for one sample, `more` for each further one.

    `prefill`: seconds per token of a prompt. `start`: seconds until a new actor serves; `wake`:
    until one that sleeps does.
    """
    return ProfileFile(
        version=1,
        engine=engine,
        model="",
        gpu="",
        tensor_parallel=1,
        batches=_BATCHES,
        contexts=(0,),
        seconds=tuple((first + more * (batch - 1),) for batch in _BATCHES),
        prefill_seconds_per_token=prefill,
        startup={"start": start},
        wake_seconds=wake,
        catch_up_seconds=0.0,
        kv_tokens=_UNBOUNDED,
        kv_bytes_per_token=0,
        handover_bytes_per_second=0.0,
    )
