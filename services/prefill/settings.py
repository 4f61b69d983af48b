"""The prefill service's settings."""

from __future__ import annotations

from pydantic import Field

from ebbtide.settings import RoleSettings


class PrefillSettings(RoleSettings):
    """What it needs beside what every process of a job has."""

    beat_seconds: float = Field(default=1.0, gt=0)
    """Time between heartbeats; a change of state is told at once."""
    orphan_seconds: float = Field(default=600.0, gt=0)
    """Without a sign of a planner for so long the process ends."""
    probe_tolerance: float = Field(default=0.01, gt=0)
    """Largest difference of the probe's log-probabilities from the learner's (float32)."""
    kv_folder: str = ""
    """Folder of the hand-over of KV within this host; empty: in shared memory."""
    kv_host: str = ""
    """Address at which other pods read KV by NIXL; empty: the one on the way to the broker."""
    kv_hold_seconds: float = Field(default=30.0, gt=0)
    """So long KV is held for the actor that asked; it is answered within a third of that."""
