"""The reasoning-gym package, imported late (it takes seconds) and without its noise."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any


def package() -> Any:
    """The imported package; a library below it has code that Python warns of when it compiles."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return import_module("reasoning_gym")
