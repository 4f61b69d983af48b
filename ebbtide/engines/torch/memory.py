"""Memory that was freed goes back to where others can have it."""

from __future__ import annotations

import ctypes
import gc

import torch


def give_back(device: str) -> None:
    """Have Python, torch and the C library keep nothing that is not in use."""
    gc.collect()  # models have cycles
    if device.startswith("cuda"):
        torch.cuda.empty_cache()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc alone has it
    if trim is not None:
        trim(0)
