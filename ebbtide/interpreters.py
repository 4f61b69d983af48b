"""Interpreters of environments beside the platform's own, on one machine.

vLLM pins versions that the platform does not, so it lives apart (docs/engines.md). Where the
platform's own environment has it, as on GPU machines, that one is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

import ebbtide
from ebbtide.errors import NotFound

VLLM = "vllm"
VLLM_VERSION = "0.32.0"
_MARKER = ".ebbtide-pins"


def interpreter(runtime: str, environment: Mapping[str, str]) -> str:
    """Python of `runtime`; empty: our own. Raises NotFound, naming the fix, if it is not there.

    EBBTIDE_VLLM_PYTHON in `environment` comes before everything else.
    """
    if not runtime:
        return sys.executable
    if runtime != VLLM:
        raise NotFound(f"there is no environment called {runtime}")
    if named := environment.get("EBBTIDE_VLLM_PYTHON"):
        return named
    if find_spec("vllm") is not None:
        return sys.executable
    folder = cached(environment)
    if not (folder / _MARKER).is_file():
        raise NotFound(
            f"vLLM is neither in this environment nor in {folder}: run make setup-vllm, or name a"
            " Python that has it and ebbtide in EBBTIDE_VLLM_PYTHON"
        )
    return str(folder / "bin" / "python")


def cached(environment: Mapping[str, str]) -> Path:
    """The folder that deploy/vllm/install.sh fills."""
    base = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "ebbtide" / f"vllm-{VLLM_VERSION}"


def sources() -> str:
    """PYTHONPATH by which another interpreter finds this very code; empty: it is installed there."""
    root = Path(ebbtide.__file__).resolve().parent.parent
    if root.name in ("site-packages", "dist-packages"):
        return ""
    return os.pathsep.join([str(root), str(root / "operator")])
