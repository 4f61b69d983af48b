"""Versions of what judges: they are part of the scorer's digest, so of every score."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from importlib.metadata import version
from pathlib import Path

from ebbtide.sandbox.cell import Cell
from ebbtide.spec import CodeReward, Component, EnvironmentSpec, FunctionReward

_PACKAGES = {
    "math": ("math-verify", "latex2sympy2_extended", "sympy"),
    "reasoning_gym": ("reasoning-gym",),
}


def versions(components: Iterable[Component], *, cell: Cell | None = None) -> dict[str, str]:
    """Version per package, and per user function the digest of its module's file.

    Called where the components have been loaded. `cell`: where programs run.
    """
    found = {"ebbtide": version("ebbtide")}
    for component in components:
        if isinstance(component, FunctionReward):
            found[component.entry_point] = _module_digest(component.entry_point)
        if isinstance(component, CodeReward) and cell:
            name = Path(cell.python).resolve().name
            found["programs"] = f"{name}, {'isolated' if cell.alone else 'not isolated'}"
        for package in _PACKAGES.get(component.type, ()):
            found[package] = version(package)
    return found


def environment_versions(spec: EnvironmentSpec) -> dict[str, str]:
    """Of what replies: ours, or the digest of the user's module, and the settings around it."""
    found = {"ebbtide": version("ebbtide"), "environment": spec.model_dump_json()}
    if spec.entry_point is not None:
        found[f"environment {spec.entry_point}"] = _module_digest(spec.entry_point)
    return found


def _module_digest(entry_point: str) -> str:
    file = getattr(sys.modules.get(entry_point.partition(":")[0]), "__file__", None)
    return hashlib.sha256(Path(file).read_bytes()).hexdigest() if file else ""
