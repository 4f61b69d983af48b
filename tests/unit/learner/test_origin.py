"""Weights are told apart by their content."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ebbtide.spec import RLHFJobSpec
from ebbtide.testing.jobs import a_spec
from services.learner.app.origin import needs_reference, weights_digest


def a_model(folder: Path, **files: bytes) -> Path:
    folder.mkdir()
    for name, content in {"a": b"one", "b": b"two", **files}.items():
        (folder / f"{name}.safetensors").write_bytes(content)
    return folder


def test_equal_weights_elsewhere_are_the_same(tmp_path: Path) -> None:
    first, second = a_model(tmp_path / "x"), a_model(tmp_path / "y")
    (second / "README.md").write_text("of no matter")
    assert weights_digest(first) == weights_digest(second)


@pytest.mark.parametrize("files", [{"a": b"onw"}, {"a": b"two", "b": b"one"}, {"c": b""}])
def test_other_weights_are_others(tmp_path: Path, files: dict[str, bytes]) -> None:
    first, second = a_model(tmp_path / "x"), a_model(tmp_path / "y", **files)
    assert weights_digest(first) != weights_digest(second)


@pytest.mark.parametrize(("kl", "needed"), [(0.0, False), (0.1, True)])
def test_only_a_kl_term_needs_a_reference(kl: float, needed: bool) -> None:
    algorithm = {"type": "grpo", "groupSize": 2, "klCoefficient": kl}
    spec = RLHFJobSpec.model_validate_json(msgspec.json.encode(a_spec(algorithm=algorithm)))
    assert needs_reference(spec) is needed
