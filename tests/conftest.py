"""What holds for every test: property tests know no clock, and in CI no chance either."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from tests.worlds.kube import ControlPlane

# A slow machine is not a counterexample. In CI the same examples run each time, so a failure
# there can be repeated; everywhere else new ones are tried.
settings.register_profile(
    "ebbtide",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ebbtide")


@pytest.fixture(scope="session")
def kubernetes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A real API server for all tests that ask for one."""
    from tests.worlds.kube import control_plane  # noqa: PLC0415 - most runs need none

    with control_plane(tmp_path_factory.mktemp("kubernetes")) as plane:
        yield plane
