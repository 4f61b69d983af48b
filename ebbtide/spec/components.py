"""What an answer can be scored by: one class per type of component."""

from __future__ import annotations

import re
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from ebbtide.addresses import fault
from ebbtide.models import Model
from ebbtide.spec.base import ENTRY_POINT_PATTERN, Name, Uri


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
        pattern=ENTRY_POINT_PATTERN,
        description="module:function, called as f(prompt=, response=, reference=) -> float; with a"
        " parameter transcript also the turns of an episode.",
    )
    weight: float = Field(1.0, ge=-1000, le=1000, description="Factor in the total.")


NO_PROGRAMS = (
    "this installation runs no programs of answers (type code): its administrator sets"
    " jobs.sandbox in the chart, see docs/reward.md; or remove the component"
)


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


class RemoteReward(Model):
    """What scorers that answer over HTTP share."""

    type: str = Field(description="Scorer.")
    name: Name = Field(description="Name of the component in metrics and samples.")
    weight: float = Field(1.0, ge=-1000, le=1000, description="Factor in the total.")
    uri: Uri = Field(description="Address, http or https, without credentials.")
    key: Name | None = Field(
        None, description="Name of the administrator's key for that address; unset: none is sent."
    )
    timeout_seconds: float = Field(
        60.0, gt=0, le=3600, description="Deadline of one answer, tries and pauses included."
    )
    tries: int = Field(4, ge=1, le=100, description="Tries while the server is away or busy.")

    @field_validator("uri")
    @classmethod
    def _web(cls, value: str) -> str:
        if why := fault(value):
            raise ValueError(f"uri cannot be called: {why}")
        if "@" in urlsplit(value).netloc:
            raise ValueError("uri must hold no credentials: name a key of the administrator")
        return value


class HttpReward(RemoteReward):
    """A server's score: POST {prompt, response, reference, task}, answered by {score}."""

    type: Literal["http"] = Field(description="Scorer over HTTP.")


class JudgeReward(RemoteReward):
    """A language model's score, by an OpenAI-compatible address."""

    type: Literal["llm-judge"] = Field(description="Language model as judge.")
    uri: Uri = Field(description="Base address, such as https://host/v1, without credentials.")
    model: str = Field(min_length=1, max_length=256, description="Model, by the server's name.")
    template: str = Field(
        min_length=1,
        max_length=65536,
        description="Message; {prompt}, {response} and {reference} (answerField) are replaced.",
    )
    answer_field: str = Field(
        "answer", max_length=64, description="Field of the row that holds the reference."
    )
    pattern: str = Field(
        r"(?im)^[ \t]*score:[ \t]*(-?\d+(?:\.\d+)?)[ \t]*$",
        max_length=1024,
        description="Expression that must match the judge's text exactly once; group 1: the score.",
    )
    low: float = Field(0.0, description="Lowest score, worth 0.")
    high: float = Field(10.0, description="Highest score, worth 1; others in proportion.")
    max_tokens: int = Field(1024, ge=1, le=1_000_000, description="Longest text of the judge.")

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, value: str) -> str:
        return _with_group(value) or value

    @model_validator(mode="after")
    def _usable(self) -> JudgeReward:
        if self.low >= self.high:
            raise ValueError("low must be below high: they are the judge's scale")
        if "{response}" not in self.template:
            raise ValueError("template needs {response}: the judge must see the answer")
        return self


class ModelReward(Model):
    """A reward model: the one output of a sequence-classification model."""

    type: Literal["model"] = Field(description="Reward model.")
    name: Name = Field(description="Name of the component in metrics and samples.")
    weight: float = Field(1.0, ge=-1000, le=1000, description="Factor in the total.")
    uri: Uri = Field(description="Folder in Hugging Face format, with tokenizer.json.")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="Where it computes.")
    threads: int = Field(1, ge=1, le=256, description="CPU threads.")
    max_tokens: int = Field(
        4096, ge=1, le=1_000_000, description="Prompt and answer; longer ones are invalid."
    )
    batch_tokens: int = Field(
        16384, ge=1, le=100_000_000, description="Tokens of one pass, padding included."
    )
    timeout_seconds: float = Field(300.0, gt=0, le=3600, description="Hard limit of one batch.")


Component = Annotated[
    RuleReward | FunctionReward | CodeReward | HttpReward | JudgeReward | ModelReward,
    Field(discriminator="type"),
]


def _expression(value: str | None) -> str | None:
    try:
        re.compile(value or "")
    except re.error as error:
        raise ValueError(f"not a regular expression: {error}") from None
    return value


def _with_group(value: str | None) -> str | None:
    if value and re.compile(_expression(value) or "").groups < 1:
        raise ValueError(
            "the expression needs a group: put (parentheses) around what it is to find"
        )
    return value
