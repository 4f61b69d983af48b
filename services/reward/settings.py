"""A scorer's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from pydantic import Field, SecretStr

from ebbtide.settings import RoleSettings

_KEY = re.compile(r'"key"\s*:\s*"([^"]+)"')


class RewardSettings(RoleSettings):
    """What a scorer needs beside what every process of a job has."""

    capacity: int = Field(default=512, ge=1, le=1024)
    """Most answers taken from the queue and not yet settled."""
    worker_memory_mib: int = Field(default=1024, ge=16)
    """Memory that judging may add to what a worker's libraries take."""
    worker_start_seconds: float = Field(default=120.0, gt=0)
    """Longest start of a worker: some verifiers take seconds to import."""
    sandbox: Literal["required", "if-possible"] = "required"
    """Whether programs of answers (type code) may run where they cannot be isolated."""
    private_networks: str = ""
    """Networks, separated by commas, that scorers over HTTP may reach though they are not public."""
    keys: SecretStr = SecretStr("{}")
    """JSON: by name the `key` and the `origin` (https://host) that alone may be sent it."""
    remote_connections: int = Field(default=64, ge=1, le=4096)
    """Connections to servers that score, all together."""
    breaker_rest_seconds: float = Field(default=5.0, gt=0)
    """First pause after too many errors in a row; doubles up to 16 times with failed trials."""

    def secrets(self, environ: Mapping[str, str]) -> list[str]:
        """The keys, each by itself."""
        found = _KEY.findall(self.keys.get_secret_value())
        return super().secrets(environ) + found
