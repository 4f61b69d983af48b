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
    site: str = "{}"
    """Where pods find everything, as JSON (ebbtide_operator.core.site.Site)."""
