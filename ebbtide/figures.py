"""Figures of samples that are alike, as reports and the API show them."""

from __future__ import annotations

from pydantic import Field

from ebbtide.models import Model


class Figures(Model):
    """Of samples that are alike."""

    samples: int = Field(ge=1, description="Accepted.")
    valued: int = Field(ge=0, description="Of these, with a reward.")
    reward: float | None = Field(None, description="Mean; unset: none has a value.")
    reward_std: float | None = Field(None, description="Standard deviation of the rewards.")
    passed: int = Field(0, ge=0, description="Valued, at or above evaluation.passThreshold.")
    tokens: float = Field(ge=0, description="Mean length of the responses.")
    truncated: int = Field(ge=0, description="Responses that ended at the limit.")
    faulty: int = Field(0, ge=0, description="With a fault of their own, such as a wrong format.")


class SliceReport(Figures):
    """Training samples of a step that are alike in one respect."""

    by: str = Field(
        description="task, length, prompts (a version of the prompt set), reward, sign, age."
    )
    value: str = Field(description="Which; 'other' stands for the rarest tasks.")
