"""An actor's settings."""

from __future__ import annotations

from pydantic import Field

from ebbtide.settings import RoleSettings


class DecodeSettings(RoleSettings):
    """What an actor needs beside what every process of a job has."""

    audit_path: str = ""
    """File to which each settled fact is appended and synced; empty: none."""
    beat_seconds: float = Field(default=1.0, gt=0)
    """Time between heartbeats; a change of state is told at once."""
    gather_seconds: float = Field(default=0.02, ge=0)
    """Answers that end within so long are stored as one object, while others are being drawn."""
    orphan_seconds: float = Field(default=600.0, gt=0)
    """Without a sign of a planner for so long the actor ends."""
    probe_tolerance: float = Field(default=0.01, gt=0)
    """Largest difference of the probe's log-probabilities from the learner's (float32)."""
    kv_folder: str = ""
    """Folder of the hand-over of KV within this host; empty: in shared memory."""
    kv_host: str = ""
    """Address at which other pods read KV by NIXL; empty: the one on the way to the broker."""
    kv_hold_seconds: float = Field(default=30.0, gt=0)
    """So long a cut sample's KV is held for the actor that goes on with it."""
    kv_pull_seconds: float = Field(default=5.0, gt=0)
    """A pull takes no longer, nor longer than a third of what its ticket is held."""
    kv_ask_seconds: float = Field(default=5.0, gt=0)
    """So long the prefill service is waited for; without a ticket the prompt is computed here."""
    kv_keep_mib: int = Field(default=256, ge=0)
    """Pulled prompts that are kept for siblings that come later."""
