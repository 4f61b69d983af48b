"""A planner's settings."""

from __future__ import annotations

from pydantic import Field

from ebbtide.settings import RoleSettings


class PlannerSettings(RoleSettings):
    """What a planner needs beside what every process of a job has."""

    tick_seconds: float = Field(default=0.1, gt=0, le=10)
    """Time between looks at deadlines and retries."""
    status_seconds: float = Field(default=1.0, gt=0, le=60)
    """Least time between two writes of the job's status."""
    prepare_seconds: float = Field(default=1800.0, gt=0)
    """Longest preparation of the data."""
