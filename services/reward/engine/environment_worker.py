"""What an environment's worker runs: the environment alone, answer by answer, within its limits."""

from __future__ import annotations

from ebbtide.rewards.environments import environment
from ebbtide.rewards.versions import environment_versions
from ebbtide.spec import EnvironmentSpec
from services.reward.engine.frames import Setup
from services.reward.engine.worker import RuleBench


def load(setup: Setup) -> RuleBench:
    """Import the environment; `setup.reward` is its spec. Raises Refused where it is not there."""
    spec = EnvironmentSpec.model_validate_json(setup.reward)
    return RuleBench((environment(spec),), versions=environment_versions(spec), setup=setup)
