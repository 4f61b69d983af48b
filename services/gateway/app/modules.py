"""Finds modules and functions by reading files: nothing is imported, so nothing runs."""

from __future__ import annotations

import ast
import re
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

_TASK = re.compile(
    r'^DATASET_NAME = "([a-z0-9_]+)"|^register_dataset\(\s*"([a-z0-9_]+)"', re.MULTILINE
)
_MAX_SOURCE = 4 << 20


def unresolved(entry_point: str) -> str:
    """Why `module:function` cannot be found, or an empty string."""
    module, _, function = entry_point.partition(":")
    spec = find(module)
    if spec is None:
        return f"there is no module {module} here: start the platform with its folder in PYTHONPATH"
    names = _names(spec)
    if names is None or function in names:
        return ""  # not Python source: only importing it would tell
    return f"the module {module} defines no {function}"


def find(module: str) -> ModuleSpec | None:
    """The spec of a dotted module; unlike importlib's own find_spec it imports no parent."""
    path: list[str] | None = None
    spec: ModuleSpec | None = None
    parts = module.split(".")
    for part in parts:
        # By its own name: a dotted one makes a namespace package look for its parent in sys.modules.
        spec = PathFinder.find_spec(part, path)
        if spec is None:
            return None
        path = list(spec.submodule_search_locations or ())
    return spec


def _names(spec: ModuleSpec) -> set[str] | None:
    """Names that a module's source binds at its top level; None where there is no source."""
    source = Path(spec.origin) if spec.origin else None
    try:
        if source is None or source.suffix != ".py" or source.stat().st_size > _MAX_SOURCE:
            return None
        tree = ast.parse(source.read_bytes())
    except (SyntaxError, ValueError):
        return set()
    except (OSError, RecursionError, MemoryError):  # what the parser raises for deep nesting
        return None
    return {name for node in tree.body for name in _bound(node)}


def _bound(node: ast.stmt) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.Import(names=names) | ast.ImportFrom(names=names):
            return [alias.asname or alias.name for alias in names]
        case ast.Assign(targets=targets):
            return [target.id for target in targets if isinstance(target, ast.Name)]
        case ast.AnnAssign(target=ast.Name(id=name)):
            return [name]
    return []


@lru_cache(maxsize=1)
def gym_tasks() -> frozenset[str]:
    """Names of reasoning-gym's datasets, read from its source; empty if it is not installed.

    Importing it takes five seconds and half of scipy; reading it takes 50 ms, once.
    """
    spec = find("reasoning_gym")
    if spec is None or not spec.submodule_search_locations:
        return frozenset()
    root = Path(spec.submodule_search_locations[0])
    texts = (file.read_text("utf-8", "replace") for file in root.rglob("*.py"))
    return frozenset(a or b for text in texts for a, b in _TASK.findall(text))
