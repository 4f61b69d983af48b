"""The operator's settings."""

from __future__ import annotations

from pydantic import Field

from ebbtide.settings import ProcessSettings


class OperatorSettings(ProcessSettings):
    """Read from the environment."""

    cluster: str
    """Objects: path of the local SQLite file, or `kubernetes[:KUBECONFIG]`."""
    blobs_url: str
    """Blob store, where held time is written."""
    namespace: str = ""
    """The one namespace to look after; empty: all."""
    lease_namespace: str = "default"
    """Namespace of the Lease object."""
    lease_seconds: float = Field(default=15.0, ge=1, le=600)
    """How long a dead operator holds the lease."""
    log_days: float = Field(default=30.0, ge=0, le=36_500)
    """Kept logs of an ended job go so many days after its end; 0: never."""
    log_job_mib: int = Field(default=4096, ge=0, le=1 << 30)
    """Of an ended job's logs the oldest go beyond so much; 0: no bound."""
    sample_days: float = Field(default=0.0, ge=0, le=36_500)
    """Samples (rollouts) of an ended job go so many days after its end; 0: never."""
    sample_job_mib: int = Field(default=0, ge=0, le=1 << 30)
    """Of an ended job's samples the oldest go beyond so much; 0: no bound."""
    retention_grace_hours: float = Field(default=24.0, ge=1, le=87_600)
    """Nothing of a job goes so soon after its end, whatever the bounds."""
    retention_seconds: float = Field(default=3600.0, ge=1, le=86_400)
    """How often it is looked what may go."""
    site: str = "{}"
    """Where pods find everything, as JSON (ebbtide_operator.core.site.Site)."""
