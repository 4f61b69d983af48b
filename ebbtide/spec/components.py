"""What an answer can be scored by: one class per type of component."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from ebbtide.spec.base import Model, Name


class RuleReward(Model):
    """A built-in rule."""

    type: Literal["exact", "numeric", "regex", "math", "reasoning_gym"] = Field(
        description="exact match, number, regular expression, math-verify, reasoning-gym scorer."
    )
    name: Name = Field(description="Name of the component in metrics and samples.")
    weight: float = Field(1.0, ge=-1000, le=1000, description="Factor in the total.")
    answer_field: str = Field(
        "answer", max_length=64, description="Field of the row that holds the reference."
    )
    extract: str | None = Field(
        None, max_length=1024, description="Regular expression whose group 1 is the answer."
    )
    pattern: str | None = Field(
        None, max_length=1024, description="For regex: what the answer must match."
    )
    tolerance: float = Field(1e-6, ge=0, le=1e6, description="For numeric: absolute tolerance.")
    threshold: float | None = Field(
        None, description="Scores below become 0, others 1; unset: the score as it is."
    )

    @field_validator("extract", "pattern")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        return _expression(value)

    @model_validator(mode="after")
    def _usable(self) -> RuleReward:
        if self.type == "regex" and not self.pattern:
            raise ValueError("type regex needs pattern: the expression that the answer must match")
        _with_group(self.extract)
        return self


class FunctionReward(Model):
    """A user's function, which the reward service imports (docs/first-job.md has one)."""

    type: Literal["function"] = Field(description="User function.")
    name: Name = Field(description="Name of the component in metrics and samples.")
    entry_point: str = Field(
        max_length=256,
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
        description="module:function, called as f(prompt=, response=, reference=) -> float.",
    )
    weight: float = Field(1.0, ge=-1000, le=1000, description="Factor in the total.")


class CodeReward(Model):
    """The answer is a Python program, run in a sandbox (docs/reward.md)."""

    type: Literal["code"] = Field(description="A program and its tests.")
    name: Name = Field(description="Name of the component in metrics and samples.")
    weight: float = Field(1.0, ge=-1000, le=1000, description="Factor in the total.")
    tests_field: str = Field(
        "tests",
        max_length=64,
        description="Field of the row with the tests: Python code that asserts, or objects with"
        " stdin and stdout; one or a list.",
    )
    extract: str | None = Field(
        r"```(?:python|py)?[ \t]*\n(.*?)```",
        max_length=1024,
        description="Regular expression whose group 1 is the program; null: the whole answer.",
    )
    score: Literal["all", "share"] = Field(
        "all", description="all: 1 if every test passes, else 0; share: the share that passes."
    )
    cpu_seconds: int = Field(5, ge=1, le=3600, description="Processor time of one process.")
    test_seconds: float = Field(5.0, gt=0, le=3600, description="By the clock, for one test.")
    wall_seconds: float = Field(8.0, gt=0, le=3600, description="By the clock, for all tests.")
    memory_mib: int = Field(512, ge=32, le=1 << 20, description="Of all processes together.")
    processes: int = Field(8, ge=1, le=1024, description="Processes and threads at a time.")
    file_mib: int = Field(16, ge=1, le=4096, description="Largest file.")
    output_kib: int = Field(1024, ge=1, le=1 << 20, description="Longest output of one test.")

    @field_validator("extract")
    @classmethod
    def _compiles(cls, value: str | None) -> str | None:
        return _with_group(value)


Component = Annotated[RuleReward | FunctionReward | CodeReward, Field(discriminator="type")]


def _expression(value: str | None) -> str | None:
    try:
        re.compile(value or "")
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return value


def _with_group(value: str | None) -> str | None:
    if value and re.compile(_expression(value) or "").groups < 1:
        raise ValueError("extract needs a group: put (parentheses) around the answer")
    return value
