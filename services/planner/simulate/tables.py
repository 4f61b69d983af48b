"""Published shapes, hardware and measurements that profiles are computed from.

Sources: model shapes from their configurations; GPUs from data sheets; `SINGLE` from the Qwen2.5
documentation (vLLM 0.6.3, A100-80G, batch 1); `LINEAR` from the profiles of Vidur (2405.05465):
milliseconds of all linear layers by tokens in the batch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Model(NamedTuple):
    """`billions` of parameters; `kv_bytes` per token; weights are bfloat16."""

    layers: int
    billions: float
    kv_bytes: int


class Gpu(NamedTuple):
    """Gigabytes, GB/s, dense bfloat16 TFLOPS; seconds of one small all-reduce over its links."""

    memory: float
    bandwidth: float
    tflops: float
    all_reduce: float


MODELS: Mapping[str, Model] = {
    "qwen2.5-0.5b": Model(24, 0.494, 12_288),
    "qwen2.5-1.5b": Model(28, 1.544, 28_672),
    "qwen2.5-3b": Model(36, 3.086, 36_864),
    "qwen2.5-7b": Model(28, 7.616, 57_344),
    "qwen2.5-14b": Model(48, 14.770, 196_608),
    "qwen2.5-32b": Model(64, 32.764, 262_144),
    "llama-2-7b": Model(32, 6.738, 524_288),
    "llama-2-70b": Model(80, 68.977, 327_680),
    "llama-3-8b": Model(32, 8.030, 131_072),
}

GPUS: Mapping[str, Gpu] = {
    "a100": Gpu(80, 2_039, 312, 35e-6),
    "h100": Gpu(80, 3_350, 989, 35e-6),
    "l40s": Gpu(48, 864, 362, 60e-6),
}
"""The all-reduce of the L40S (no NVLink) is assumed; those of the others are Vidur's."""

CONTEXTS = (1, 6_144, 14_336, 30_720)
SINGLE: Mapping[str, tuple[float, ...]] = {
    "qwen2.5-0.5b": (311.6, 304.8, 290.3, 264.5),
    "qwen2.5-1.5b": (183.3, 176.7, 168.7, 152.0),
    "qwen2.5-3b": (127.6, 123.2, 117.4, 105.9),
    "qwen2.5-7b": (84.3, 80.7, 77.7, 70.3),
    "qwen2.5-14b": (46.3, 43.8, 41.9, 37.2),
    "qwen2.5-32b": (22.1, 21.1, 19.9),
}
"""Tokens a second on one A100 at each of `CONTEXTS`."""

TOKENS = (1, 8, 32, 64, 128, 256, 512, 1024, 4096)
LINEAR: Mapping[tuple[str, str, int], tuple[float, ...]] = {
    ("llama-2-7b", "h100", 1): (5.6, 5.5, 5.9, 5.9, 6.4, 9.3, 12.1, 21.3, 84.0),
    ("llama-2-7b", "h100", 2): (3.2, 3.2, 3.4, 3.6, 3.8, 4.6, 7.2, 12.2, 45.0),
    ("llama-2-7b", "h100", 4): (2.1, 2.1, 2.3, 2.3, 2.6, 3.1, 4.5, 7.8, 26.0),
    ("llama-2-7b", "h100", 8): (1.4, 1.6, 1.6, 1.7, 1.9, 2.3, 3.2, 5.1, 18.0),
    ("llama-3-8b", "a100", 1): (9.8, 10.1, 11.0, 11.3, 13.3, 19.6, 34.9, 75.6, 275.0),
    ("llama-3-8b", "a100", 2): (5.7, 5.9, 5.8, 6.0, 7.8, 11.7, 18.6, 37.1, 145.0),
    ("llama-3-8b", "a100", 4): (3.5, 3.4, 3.7, 3.7, 4.7, 7.7, 12.2, 21.3, 79.0),
    ("llama-3-8b", "a100", 8): (2.2, 2.5, 2.4, 2.4, 3.5, 4.5, 6.7, 11.4, 45.0),
    ("llama-2-70b", "h100", 2): (25.7, 25.9, 26.8, 27.1, 28.3, 32.9, 57.0, 116.0, 442.0),
    ("llama-2-70b", "h100", 4): (14.5, 15.1, 15.5, 15.5, 16.2, 19.5, 31.0, 63.0, 228.0),
    ("llama-2-70b", "h100", 8): (8.4, 8.6, 9.4, 9.1, 10.3, 11.9, 18.0, 34.0, 128.0),
}
