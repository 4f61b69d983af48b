"""A process's settings: read once from its environment, frozen, printed without secrets.

Every `__main__` calls `SomeSettings.load(os.environ)` before any heavy import. A field is a
variable: `nats_url` is EBBTIDE_NATS_URL. A variable with the prefix that no field claims is an
error, so a misspelt one cannot be ignored in silence. Services extend `RoleSettings`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError

from ebbtide.errors import Refused

PREFIX = "EBBTIDE_"
_SECRET = re.compile(r"(PASSWORD|SECRET|TOKEN|SECRET_KEY|ACCESS_KEY|API_KEY)$")
_USERINFO = re.compile(r"//[^/@\s]*@")


class Settings(BaseModel):
    """Base of all settings: frozen, unknown keys refused, values never quoted in errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @classmethod
    def load(cls, environ: Mapping[str, str]) -> Self:
        """Read the EBBTIDE_ variables of `environ`; raises Refused that names the variable."""
        given = {
            key.removeprefix(PREFIX).lower(): value
            for key, value in environ.items()
            if key.startswith(PREFIX)
        }
        try:
            return cls.model_validate(given)
        except ValidationError as error:
            raise _refusal(cls, error) from None

    def describe(self) -> dict[str, Any]:
        """All settings for the log at start: secrets starred, long texts by their length."""
        return {name: _shown(value) for name, value in self.model_dump().items()}

    def secrets(self, environ: Mapping[str, str]) -> list[str]:
        """Values that no log may show: our own, and of variables that are named like secrets."""
        found = [getattr(self, name) for name in type(self).model_fields]
        own = [one.get_secret_value() for one in found if isinstance(one, SecretStr)]
        return own + [value for name, value in environ.items() if _SECRET.search(name)]

    def environ(self) -> dict[str, str]:
        """The variables that `load` reads back into an equal value; holds secrets in the clear."""
        dumped = {name: getattr(self, name) for name in type(self).model_fields}
        return {
            PREFIX + name.upper(): _plain(value)
            for name, value in dumped.items()
            if value is not None
        }


class ProcessSettings(Settings):
    """What every long-running process has."""

    health_host: str = "127.0.0.1"
    """Address that /healthz, /readyz and /metrics listen on."""
    health_port: int = Field(default=0, ge=0, le=65535)
    """Port of the same; 0 takes a free one and logs it."""
    grace_seconds: float = Field(default=25.0, gt=0)
    """From SIGTERM to the forced end; below Kubernetes' terminationGracePeriodSeconds."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lines below this level are not written."""
    otlp_url: str = ""
    """Where spans of traces go by OTLP over HTTP (.../v1/traces); empty: traces are off."""
    metrics: bool = True
    """Whether the process counts; without, /metrics has its CPU and memory alone."""
    pod: str = "local"
    """Name of this process's pod: the instance in logs, heartbeats and cost."""


class RoleSettings(ProcessSettings):
    """What every process of a job has; the operator sets it."""

    nats_url: str = "nats://127.0.0.1:4222"
    """Broker; more than one server separated by commas."""
    nats_user: str = ""
    """This role's user at the broker; empty: the broker asks for none."""
    nats_password: SecretStr = SecretStr("")
    """Password of `nats_user`."""
    valkey_url: str = "redis://127.0.0.1:6379/0"
    """Hot store, without credentials."""
    valkey_password: SecretStr = SecretStr("")
    """Password of the hot store; empty: it asks for none."""
    blobs_url: str
    """Blob store: file:///path, s3://bucket/prefix, gs://..., az://..., memory:///."""
    blobs_cache: str = ""
    """Folder for copies of remote blobs; empty: a folder of the system's temporary one."""
    cluster: str = ""
    """Objects: path of the local SQLite file, or `kubernetes[:KUBECONFIG]`; empty: none."""
    namespace: str = "default"
    """Namespace of the job object."""
    job: str
    """Name of the job object."""
    job_uid: str
    """Its uid, which names all data of the job."""
    attempt: int = Field(default=1, ge=0)
    """Attempt of the learner gang that this process belongs to; actors adopt higher ones."""
    spec: str = "{}"
    """The job's spec as JSON."""
    log_mib: int = Field(default=16, ge=0, le=1024)
    """What is kept of this pod's log in the blob store: its beginning, and the newest; 0: nothing."""
    log_seconds: float = Field(default=5.0, gt=0, le=300)
    """How often it is written there; a process that is killed loses so much of it."""


def _refusal(cls: type[Settings], error: ValidationError) -> Refused:
    first = error.errors(include_url=False, include_input=False)[0]
    name = PREFIX + "_".join(str(part) for part in first["loc"]).upper()
    if first["type"] == "extra_forbidden":
        known = ", ".join(sorted(PREFIX + field.upper() for field in cls.model_fields))
        return Refused(f"{name} is not a setting of this process; known: {known}", field=name)
    if first["type"] == "missing":
        return Refused(f"{name} is not set", field=name)
    return Refused(f"{name}: {first['msg']}", field=name)


def _shown(value: Any) -> Any:
    if not isinstance(value, str):
        return str(value) if isinstance(value, SecretStr) else value
    short = value if len(value) <= 200 else f"<{len(value)} characters>"
    return _USERINFO.sub("//***@", short)


def _plain(value: Any) -> str:
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
