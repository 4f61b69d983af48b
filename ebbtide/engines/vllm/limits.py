"""What a vLLM engine is given, and whether a model fits it (pure: no vllm here)."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Literal

from ebbtide.errors import Refused
from ebbtide.spec import RLHFJobSpec

CPU_BLOCK = 32
"""Tokens of a KV block on a CPU: the kernels take multiples of it."""
GPU_BLOCK = 16
CPU_HEADS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Sizes of an attention head that vLLM's CPU kernels know."""
_ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",
}
_WIDTHS = {"float32": 4, "bfloat16": 2, "float16": 2}
FLOATS = tuple(_WIDTHS)


@dataclass(frozen=True, kw_only=True)
class VllmLimits:
    """Lengths in tokens, times in seconds, memory in bytes."""

    slots: int = 64
    width: int = 1024
    """Greatest prompt plus response."""
    device: Literal["cpu", "cuda"] = "cpu"
    tensor_parallel: int = 1
    batched_tokens: int = 0
    """Most tokens of one forward; 0: vLLM's own choice, but never less than `width`."""
    chunked_prefill: bool = False
    """On a GPU alone. vLLM 0.32 on a CPU dies of a seeded sample whose prompt is cut in pieces."""
    memory_share: float = 0.9
    """Of a GPU's memory, weights and KV together; on a CPU `kv_bytes` says it."""
    kv_bytes: int = 1 << 30
    kv_dtype: str = "auto"
    dtype: str = "auto"
    """Of the weights; auto: as the policy is published."""
    eager: bool = True
    """Without compilation or recorded graphs."""
    stream_tokens: int = 8
    """New tokens of a sample come out of vLLM in pieces of so many;"""
    flush_tokens: int = 32
    """they are reported when there are so many,"""
    flush_seconds: float = 1.0
    """or, for all samples, this long after the last time."""
    sync_seconds: float = 600.0
    """Within this time a policy is loaded into a running engine, or the engine is given up."""

    @property
    def block_size(self) -> int:
        return CPU_BLOCK if self.device == "cpu" else GPU_BLOCK

    def longest(self, config: Mapping[str, Any]) -> int:
        """Length that vLLM is told: one more than needed where the model has room for it.

        A probe as long as the width then leaves room for the token that vLLM always draws.
        """
        known = _text(config).get("max_position_embeddings")
        return self.width if known is not None and known <= self.width else self.width + 1


def limits_of(spec: RLHFJobSpec, *, device: Literal["cpu", "cuda"]) -> VllmLimits:
    """What the job's `decode.vllm` says, on such a device."""
    settings, chunked = spec.decode.vllm, spec.decode.vllm.chunked_prefill
    return VllmLimits(
        slots=spec.decode.slots,
        width=spec.dataset.max_prompt_tokens + spec.training.max_response_tokens,
        device=device,
        tensor_parallel=settings.tensor_parallel,
        batched_tokens=settings.max_batched_tokens or 0,
        chunked_prefill=device == "cuda" if chunked is None else chunked,
        memory_share=settings.gpu_memory_share,
        kv_bytes=settings.cpu_kv_mib << 20,
        kv_dtype=settings.kv_dtype,
        dtype=settings.dtype,
        eager=settings.eager if settings.eager is not None else device == "cpu",
    )


def prepare(environment: MutableMapping[str, str]) -> None:
    """Set what vLLM reads from its environment, unless it is set; best before vllm is imported.

    Nothing is sent anywhere, cores are shared by threads as OMP_NUM_THREADS says, and a CPU actor's
    worker lives in the process that schedules it (VLLM_ENABLE_V1_MULTIPROCESSING; AsyncLLM starts that
    process in any case).
    """
    for name, value in _ENVIRONMENT.items():
        environment.setdefault(name, value)


def check_fit(config: Mapping[str, Any], limits: VllmLimits) -> None:
    """Raise Refused, naming the setting, where the model of `config` (config.json) cannot run.

    Raises TypeError or ValueError where sizes in it are no numbers.
    """
    text = _text(config)
    known = text.get("max_position_embeddings")
    if known is not None and limits.width > int(known):
        why = f"prompt and response may need {limits.width} tokens, the model has {known} positions"
        raise Refused(why, field="/spec/training/maxResponseTokens")
    _check_forward(limits)
    heads, keys, size = _heads(text)
    if not heads:
        return
    _check_split(heads, keys, int(text.get("intermediate_size") or 0), limits.tensor_parallel)
    if limits.device == "cpu":
        if size not in CPU_HEADS:
            why = f"vLLM's CPU kernels know no attention head of size {size}, only {CPU_HEADS}"
            raise Refused(f"{why}: use decode.engine torch", field="/spec/decode/engine")
        _check_memory(_longest_kv(config, limits, "float16"), limits)


def check_device(
    config: Mapping[str, Any],
    limits: VllmLimits,
    *,
    shapes: Sequence[Sequence[int]],
    dtype: str,
    memory: int,
) -> None:
    """Raise Refused where a GPU's share cannot hold the weights and one sample of full length.

    `shapes`: of all tensors; `dtype`: what they are held in; `memory`: of one GPU, bytes. What
    vLLM needs beside them is not known before it runs, and comes on top.
    """
    weights = sum(prod(shape) for shape in shapes) * _WIDTHS[dtype]
    needed = (weights + _longest_kv(config, limits, dtype)) // limits.tensor_parallel
    allowed = int(limits.memory_share * memory)
    if needed <= allowed:
        return
    why = f"weights and the longest sample need {_gib(needed)} on each GPU"
    share = f"a share of {limits.memory_share:g} of its memory is {_gib(allowed)}"
    fix = "raise gpuMemoryShare or tensorParallel, or take larger GPUs"
    raise Refused(f"{why}, {share}: {fix}", field="/spec/decode/vllm/gpuMemoryShare")


def _heads(text: Mapping[str, Any]) -> tuple[int, int, int]:
    """Attention heads, those of keys and values, and their size; zeros where it does not say."""
    heads = int(text.get("num_attention_heads") or 0)
    size = int(text.get("head_dim") or (int(text.get("hidden_size") or 0) // max(heads, 1)))
    return heads, int(text.get("num_key_value_heads") or heads), size


def _longest_kv(config: Mapping[str, Any], limits: VllmLimits, dtype: str) -> int:
    """Bytes of the longest sample's keys and values, over all devices, at least."""
    _, keys, size = _heads(_text(config))
    each = 1 if limits.kv_dtype.startswith("fp8") else _WIDTHS[dtype]
    return 2 * int(_text(config).get("num_hidden_layers") or 0) * keys * size * each * limits.width


def _check_forward(limits: VllmLimits) -> None:
    """A prompt that is not cut in pieces fits one forward."""
    if limits.chunked_prefill:
        if limits.device == "cpu":
            why = "vLLM cannot cut prompts in pieces on a CPU: remove it"
            raise Refused(why, field="/spec/decode/vllm/chunkedPrefill")
    elif 0 < limits.batched_tokens < limits.width:
        why = f"{limits.batched_tokens} tokens of one forward, a sample may need {limits.width}"
        raise Refused(f"{why}: raise it", field="/spec/decode/vllm/maxBatchedTokens")


def _check_split(heads: int, keys: int, inner: int, parallel: int) -> None:
    """Heads, and those of keys and values, are split over devices, or copied whole to each."""
    field = "/spec/decode/vllm/tensorParallel"
    if heads % parallel or (keys % parallel and parallel % keys):
        why = f"{heads} attention heads ({keys} of keys) cannot be split over {parallel} devices"
        raise Refused(f"{why}: choose a divisor", field=field)
    if inner % parallel:
        why = f"layers of {inner} inner features cannot be split over {parallel} devices"
        raise Refused(f"{why}: choose a divisor", field=field)


def _check_memory(needed: int, limits: VllmLimits) -> None:
    """The longest sample has room."""
    if needed > limits.kv_bytes:
        why = f"the longest sample needs {-(-needed // (1 << 20))} MiB of KV, there are {limits.kv_bytes >> 20}"
        raise Refused(f"{why}: raise cpuKvMib", field="/spec/decode/vllm/cpuKvMib")


def _gib(size: int) -> str:
    return f"{size / 2**30:.1f} GiB"


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = config.get("text_config", config)
    return found
