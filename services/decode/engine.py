"""The engine that the job's spec asks for; torch or vLLM are imported only when it is the one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import Literal

from ebbtide.engines.emulated import EmulatedEngine
from ebbtide.engines.emulation import Emulated
from ebbtide.errors import Refused
from ebbtide.ports import Clock, Engine
from ebbtide.spec import RLHFJobSpec


def make_engine(spec: RLHFJobSpec, *, clock: Clock) -> Engine:
    """Build the engine of `spec.decode`; it serves nothing until a policy is loaded."""
    width = spec.dataset.max_prompt_tokens + spec.training.max_response_tokens
    if spec.decode.engine == "emulated":
        return _emulated(spec, width, clock)
    if spec.decode.engine == "vllm":
        return _vllm(spec)
    return _torch(spec, width)


async def start_engine(
    spec: RLHFJobSpec, *, clock: Clock, make: Callable[..., Engine] = make_engine
) -> Engine:
    """`make_engine` beside the event loop, which goes on answering probes.

    On busy cores the imports of vLLM take longer than a process may be silent.
    """
    return await asyncio.to_thread(make, spec, clock=clock)


def _emulated(spec: RLHFJobSpec, width: int, clock: Clock) -> Engine:
    numbers = spec.decode.emulation
    params = Emulated(
        slots=spec.decode.slots,
        width=width,
        mean_tokens=numbers.mean_tokens,
        sigma=numbers.sigma,
        tpot=numbers.tpot_ms / 1000,
        tpot_per_row=numbers.tpot_per_row_ms / 1000,
        prompt_share=numbers.prompt_share,
        prefill=numbers.prefill_ms_per_token / 1000,
        prefix_cache=numbers.prefix_cache,
    )
    return EmulatedEngine(params, clock=clock)


def _torch(spec: RLHFJobSpec, width: int) -> Engine:
    import torch  # noqa: PLC0415 - 9 seconds, and the emulated engine needs none of it

    from ebbtide.engines.torch.decoder import Limits  # noqa: PLC0415
    from ebbtide.engines.torch.engine import TorchEngine  # noqa: PLC0415

    torch.set_num_threads(spec.decode.threads)
    device = spec.decode.device
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    limits = Limits(slots=spec.decode.slots, width=width, reference=spec.decode.reference_mode)
    return TorchEngine(limits, device=device)


def _vllm(spec: RLHFJobSpec) -> Engine:
    from ebbtide.engines.vllm.limits import limits_of, prepare  # noqa: PLC0415

    os.environ["OMP_NUM_THREADS"] = str(spec.decode.threads)  # of the processes that it starts
    prepare(os.environ)
    import torch  # noqa: PLC0415

    from ebbtide.engines.vllm.engine import VllmEngine  # noqa: PLC0415 - has its own environment

    on_gpu = torch.cuda.is_available()
    device: Literal["cpu", "cuda"] = "cuda" if on_gpu and spec.decode.device != "cpu" else "cpu"
    if spec.decode.device == "cuda" and not on_gpu:
        raise Refused("there is no GPU here", field="/spec/decode/device")
    return VllmEngine(limits_of(spec, device=device))
