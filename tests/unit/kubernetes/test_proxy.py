"""The proxy to the API server is the environment's, looked up once."""

from __future__ import annotations

import pytest

from ebbtide.adapters.cluster_kubernetes.api import proxy_for


def test_the_environments_proxy_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    assert proxy_for("https://kube.example:6443") == "http://proxy:3128"


def test_a_server_that_is_reached_directly_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://proxy:3128")
    monkeypatch.setenv("no_proxy", "kube.example")
    assert proxy_for("https://kube.example:6443") == ""
    assert proxy_for("https://other.example:6443") == "http://proxy:3128"
