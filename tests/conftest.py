"""What holds for every test: property tests know no clock, and in CI no chance either."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# A slow machine is not a counterexample. In CI the same examples run each time, so a failure
# there can be repeated; everywhere else new ones are tried.
settings.register_profile(
    "ebbtide",
    deadline=None,
    derandomize=bool(os.environ.get("CI")),
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("ebbtide")
