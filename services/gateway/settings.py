"""What one gateway process is told."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from ebbtide.settings import ProcessSettings


class GatewaySettings(ProcessSettings):
    """Read from the environment: `port` is EBBTIDE_PORT."""

    host: str = "127.0.0.1"
    """Address that the API listens on."""
    port: int = Field(default=8470, ge=0, le=65535)
    """Port of the API; 0 takes a free one and logs it."""
    cluster: str = ""
    """Objects: path of the local SQLite file, or `kubernetes[:KUBECONFIG]`."""
    namespace: str = "default"
    """The one namespace whose jobs are served."""
    blobs_url: str
    """Blob store of the jobs, read only."""
    blobs_cache: str = ""
    """Folder for copies of remote blobs; empty: a folder of the system's temporary one."""
    auth: Literal["tokens", "kubernetes"] = "tokens"
    """Who is let in: those in the tokens file, or those whom the API server lets do the same."""
    audience: str = ""
    """For auth kubernetes: what tokens must be meant for; empty: the API server itself."""
    oidc_issuer: str = ""
    """For auth kubernetes: URL of an OIDC issuer whose tokens are checked here; empty: none."""
    oidc_audience: str = ""
    """Whom its tokens must be meant for; required with `oidc_issuer`."""
    oidc_prefix: str = Field(default="oidc:", min_length=1)
    """Put before the user and group names of its tokens."""
    tokens_file: str = ""
    """File of `tenant:sha256` lines (ebbtide.tokens); for auth tokens required unless `insecure`."""
    insecure: bool = False
    """Serve everybody without a token. For a machine that nobody else can reach."""
    opencost_url: str = ""
    """Where OpenCost answers, such as http://opencost.opencost:9003; empty: there is none."""
    check_paths: bool = True
    """Validation looks at model and dataset files: this process sees what the learner sees."""
    programs: bool = True
    """Whether jobs may have programs of answers run (rewards of type code); the operator judges too."""
    max_body_bytes: int = Field(default=1 << 20, ge=1024, le=64 << 20)
    """A request body larger than this is answered with 413."""
    rate_per_second: float = Field(default=50.0, gt=0, le=1e6)
    """Requests a second that one tenant may send in the long run; more gets 429."""
    rate_burst: int = Field(default=200, ge=1, le=1_000_000)
    """Requests that a tenant may send at once after a pause."""
    heartbeat_seconds: float = Field(default=15.0, gt=0, le=300)
    """A stream without news sends a comment this often."""
    poll_seconds: float = Field(default=0.5, gt=0, le=60)
    """How often a stream looks for news."""
    max_streams: int = Field(default=256, ge=1, le=100_000)
    """Open event and log streams of this process; more gets 429."""
    send_seconds: float = Field(default=30.0, gt=0, le=600)
    """A stream whose client takes no byte for so long is cut; it can resume."""

    @property
    def runs_here(self) -> bool:
        """Whether jobs run on this machine: the local platform, which shows us their files."""
        return self.check_paths and not self.cluster.startswith("kubernetes")
