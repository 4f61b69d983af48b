"""What answers the policy between its turns."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from ebbtide.models import Model
from ebbtide.spec.base import ENTRY_POINT_PATTERN


class EnvironmentSpec(Model):
    """Episodes: after each turn the environment replies, or ends the episode (docs/episodes.md)."""

    name: Literal["calculator"] | None = Field(
        None, description="A built-in one. calculator: does sums written as <calc>2*(3+4)</calc>."
    )
    entry_point: str | None = Field(
        None,
        max_length=256,
        pattern=ENTRY_POINT_PATTERN,
        description="module:function, called as f(prompt=, transcript=, reference=) -> the reply as"
        " text, or None when the episode is over.",
    )
    max_turns: int = Field(
        8, ge=2, le=256, description="Turns of the policy in an episode; after the last it is over."
    )
    max_reply_tokens: int = Field(
        512, ge=1, le=65_536, description="Longest reply; a longer one makes the sample invalid."
    )
    role: Literal["user", "tool"] = Field(
        "user", description="As whom the chat template shows a reply."
    )
    workers: int = Field(1, ge=1, le=64, description="Killable worker processes per scorer.")
    timeout_seconds: float = Field(
        10.0, gt=0, le=3600, description="Hard limit per reply; the worker is killed at it."
    )

    @model_validator(mode="after")
    def _one(self) -> EnvironmentSpec:
        if (self.name is None) == (self.entry_point is None):
            raise ValueError("an environment is either built in or yours: give name or entryPoint")
        return self
