"""A rank's settings."""

from __future__ import annotations

from pydantic import Field

from ebbtide.settings import RoleSettings


class LearnerSettings(RoleSettings):
    """What a rank needs beside what every process of a job has."""

    rank: int = Field(default=0, ge=0)
    """This rank, from 0; rank 0 answers the planner."""
    world_size: int = Field(default=0, ge=0)
    """Ranks in all; 0: as many as the job's spec says."""
    rendezvous: str = ""
    """Where ranks meet: tcp://host:port of rank 0, or file:///path that no attempt used before;
    may be empty for a single rank."""
    restore: str = ""
    """Path of the manifest to restore from; empty: the one that the ledger names."""
    staging: str = ""
    """Local folder for publications and shards being written; empty: the temporary folder."""
    collective_seconds: float = Field(default=120.0, gt=0)
    """No rank waits longer for the others; then the gang ends and the next attempt starts."""
    start_seconds: float = Field(default=180.0, gt=0)
    """Longest wait for the planner to say in the ledger what to restore from."""
    storage_seconds: float = Field(default=120.0, ge=0)
    """For so long an update that storage refuses (a full disk) is tried again; then the job fails
    with the reason."""
    compile_backend: str = "inductor"
    """Backend of torch.compile, for jobs that ask for it; aot_eager needs no C++ compiler, and is no
    faster."""
    keep_policies: int = Field(default=3, ge=2)
    """Newest publications kept, beside those that checkpoints name."""
