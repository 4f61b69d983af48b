"""One installation for all tests of this folder; the last of them uninstalls it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ebbtide.client import Client
from tests.cluster.figures import Figures
from tests.e2e.tiny import write_model, write_prompts
from tests.worlds.cluster import Cluster, gateway, install, prepare, the_cluster

FIGURES = pytest.StashKey[Figures]()


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    for line in config.stash.get(FIGURES, Figures()).lines():
        terminalreporter.write_line(line)


@pytest.fixture(scope="session")
def figures(pytestconfig: pytest.Config) -> Figures:
    return pytestconfig.stash.setdefault(FIGURES, Figures())


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    found = the_cluster()
    prepare(found)
    material = found.store / "material"
    write_model(material / "model", more=110)
    write_model(material / "deep", more=110, layers=80)
    write_prompts(material / "prompts.jsonl")
    for file in material.rglob("*"):  # safetensors writes for its own user alone
        file.chmod(0o755 if file.is_dir() else 0o644)
    return found


@pytest.fixture(scope="session")
def installed(cluster: Cluster, figures: Figures) -> Cluster:
    figures.note("from installing the chart until all of it is ready", install(cluster), most=60)
    return cluster


@pytest.fixture(scope="session")
def client(installed: Cluster) -> Iterator[Client]:
    with gateway(installed) as found:
        yield found
