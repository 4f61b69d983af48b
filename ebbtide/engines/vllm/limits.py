"""What a vLLM engine is given, and whether a model fits it (pure: no vllm here)."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any, Literal

from ebbtide.errors import Refused

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
FLOATS = ("float32", "bfloat16", "float16")


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
    chunked_prefill: bool = True
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


def prepare(environment: MutableMapping[str, str]) -> None:
    """Set what vLLM reads from its environment, unless it is set; best before vllm is imported.

    Nothing is sent anywhere, cores are shared by threads as OMP_NUM_THREADS says, and a CPU actor's
    worker lives in the process that schedules it (VLLM_ENABLE_V1_MULTIPROCESSING; AsyncLLM starts that
    process in any case).
    """
    for name, value in _ENVIRONMENT.items():
        environment.setdefault(name, value)


def check_fit(config: Mapping[str, Any], limits: VllmLimits) -> None:
    """Raise Refused, naming the setting, where the model of `config` (config.json) cannot run."""
    text = _text(config)
    heads = int(text.get("num_attention_heads", 0))
    size = int(text.get("head_dim") or (int(text.get("hidden_size", 0)) // max(heads, 1)))
    known = text.get("max_position_embeddings")
    if known is not None and limits.width > int(known):
        why = f"prompt and response may need {limits.width} tokens, the model has {known} positions"
        raise Refused(why, field="/spec/training/maxResponseTokens")
    if not heads:
        return
    keys = int(text.get("num_key_value_heads") or heads)
    _check_split(heads, keys, limits.tensor_parallel)
    if limits.device == "cpu":
        if size not in CPU_HEADS:
            why = f"vLLM's CPU kernels know no attention head of size {size}, only {CPU_HEADS}"
            raise Refused(f"{why}: use decode.engine torch", field="/spec/decode/engine")
        _check_memory(2 * int(text.get("num_hidden_layers", 0)) * keys * size, limits)


def _check_split(heads: int, keys: int, parallel: int) -> None:
    """Heads, and those of keys and values, are split over devices, or copied whole to each."""
    if heads % parallel or (keys % parallel and parallel % keys):
        why = f"{heads} attention heads ({keys} of keys) cannot be split over {parallel} devices"
        raise Refused(f"{why}: choose a divisor", field="/spec/decode/vllm/tensorParallel")


def _check_memory(numbers: int, limits: VllmLimits) -> None:
    """At two bytes for each of `numbers` a token, the longest sample has room."""
    needed = 2 * numbers * limits.width
    if needed > limits.kv_bytes:
        why = f"the longest sample needs {-(-needed // (1 << 20))} MiB of KV, there are {limits.kv_bytes >> 20}"
        raise Refused(f"{why}: raise cpuKvMib", field="/spec/decode/vllm/cpuKvMib")


def _text(config: Mapping[str, Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = config.get("text_config", config)
    return found
