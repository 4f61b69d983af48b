"""A planner's settings."""

from __future__ import annotations

from pydantic import Field

from ebbtide.settings import RoleSettings


class PlannerSettings(RoleSettings):
    """What a planner needs beside what every process of a job has."""

    nats_copies: int = Field(default=1, ge=1, le=5)
    """Copies of each stream that this planner makes: as many as the broker has servers, up to 3."""
    lease_seconds: float = Field(default=10.0, gt=0)
    """An actor that was not heard for so long has lost its samples."""
    join_seconds: float = Field(default=10.0, ge=0)
    """Work of actors that are still starting is kept for them so long, at the first step."""
    tick_seconds: float = Field(default=0.1, gt=0, le=10)
    """How often deadlines, leases and retries are looked at."""
    gather_seconds: float = Field(default=0.1, ge=0)
    """Ledger records that nobody waits for are gathered so long into one segment.

    A step's last samples are not kept waiting.
    """
    prepare_seconds: float = Field(default=3600.0, gt=0)
    """Longest preparation of the data."""
    status_seconds: float = Field(default=1.0, gt=0, le=60)
    """Least time between two writes of the job's status."""
    beat_seconds: float = Field(default=2.0, gt=0)
    """Time between signs of life, without which actors end in the long run."""
