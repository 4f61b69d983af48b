"""What a job's fixed reference is: the weights at `model.uri`, by their content."""

from __future__ import annotations

import hashlib
from pathlib import Path

from ebbtide.spec import DpoSpec, PolicyGradientSpec, RLHFJobSpec

_WEIGHTS = ("config.json", "*.safetensors", "*.bin")


def needs_reference(spec: RLHFJobSpec) -> bool:
    """Whether updates are held near the initial policy, which is read at every attempt."""
    algorithm = spec.algorithm
    held = isinstance(algorithm, PolicyGradientSpec) and algorithm.kl_coefficient > 0
    return held or isinstance(algorithm, DpoSpec)


def weights_digest(model: Path) -> str:
    """SHA-256 over names and contents of the files that make a model, in order of name."""
    whole = hashlib.sha256()
    for path in sorted(found for pattern in _WEIGHTS for found in model.glob(pattern)):
        with path.open("rb") as file:
            content = hashlib.file_digest(file, "sha256").hexdigest()
        whole.update(f"{path.name} {content}\n".encode())
    return whole.hexdigest()
