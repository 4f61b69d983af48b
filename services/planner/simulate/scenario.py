"""What is simulated, as a file says it: work, lengths, actors, prices, phases, policies (strict)."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, ValidationError, model_validator

from ebbtide.errors import Refused
from ebbtide.models import Model

Count = Annotated[int, Field(ge=1, le=1_000_000)]
Time = Annotated[float, Field(ge=0, le=86_400)]
Price = Annotated[float, Field(gt=0, le=10_000)]
Share = Annotated[float, Field(ge=0, le=1)]
MAX_TOKENS = 10_000_000


class Work(Model):
    """An epoch goes once over all prompts, in steps of the same size."""

    prompts: Count = Field(description="Of the data set, each seen once an epoch.")
    prompts_per_step: Count
    group_size: Annotated[int, Field(ge=1, le=1024)] = Field(description="Samples per prompt.")
    limit: Annotated[int, Field(ge=1, le=MAX_TOKENS)] = Field(description="Tokens of an answer.")
    epochs: Annotated[int, Field(ge=1, le=100)] = 3

    @model_validator(mode="after")
    def _whole_steps(self) -> Work:
        if self.prompts % self.prompts_per_step:
            raise ValueError("prompts must be a multiple of promptsPerStep")
        return self


class Lengths(Model):
    """Log-normal answers with TailSieve's parts of variance, or a file's lengths."""

    median: Annotated[float, Field(gt=0, le=MAX_TOKENS)] | None = None
    p90: Annotated[float, Field(gt=0, le=MAX_TOKENS)] | None = None
    chance: Share = Field(0.261, description="Share of the variance that no history removes.")
    trend: Annotated[float, Field(ge=-1, le=1)] = Field(0.0, description="Of log length an epoch.")
    file: str | None = Field(None, description="CSV or JSON lines, optionally gzipped.")

    @model_validator(mode="after")
    def _one_source(self) -> Lengths:
        if (self.file is None) == (self.median is None) or (self.median is None) != (
            self.p90 is None
        ):
            raise ValueError("give either a file, or median and p90")
        if self.median is not None and self.p90 is not None and self.p90 < self.median:
            raise ValueError("p90 lies below the median")
        return self


class ActorType(Model):
    """One kind of decode actor. A profile file, or model and GPU to compute one from."""

    gpu: str
    tensor_parallel: Annotated[int, Field(ge=1, le=64)] = 1
    per_gpu_hour: Price | None = Field(None, description="Unset: unknown, and never zero.")


class Start(Model):
    """`hidden`: asked for early, while the learner works; it costs, but nobody waits."""

    seconds: Time = 0.0
    hidden: bool = True


class Actors(ActorType):
    """The pool. `count`: those of the static policies, and the most that any policy may use."""

    count: Annotated[int, Field(ge=0, le=4096)]
    slots: Annotated[int, Field(ge=1, le=4096)] = 256
    start: Start = Start()


class Tail(ActorType):
    """A faster kind for the longest answers; takes GPUs from the same quota."""

    most: Annotated[int, Field(ge=1, le=4096)] = 4


class Held(Model):
    """A role that is held for the whole step, whoever waits for whom."""

    role: str
    gpus: Count
    per_gpu_hour: Price | None = None


class Phases(Model):
    """Seconds of what comes before and after decoding."""

    sync: Time = 0.0
    score: Time = 0.0
    learn: Time = 0.0


class Network(Model):
    """Between actors."""

    gigabytes_per_second: Annotated[float, Field(gt=0, le=10_000)] = 10.0
    tick: Annotated[float, Field(ge=0.1, le=600)] = Field(
        1.0, description="Seconds between two looks at what could move."
    )
    pause: Time = Field(0.05, description="Seconds of a move beside its bytes.")


class Spot(Model):
    """Spot actors. `per_gpu_hour` beside the pool's on-demand price."""

    per_gpu_hour: Price
    interruptions_per_hour: Annotated[float, Field(ge=0, le=1000)] = Field(description="Per actor.")
    notice: Time = 120.0
    available: Share = Field(1.0, description="Chance of each of `count` to be had in a step.")


class Value(Model):
    """`hour_worth`: what an hour of step time is worth beside the held roles, in dollars."""

    hour_worth: Annotated[float, Field(ge=0, le=1e6)] = 0.0


class Scenario(Model):
    """One file."""

    name: Annotated[str, Field(min_length=1, max_length=80)]
    known: tuple[str, ...] = Field((), description="What a paper says.")
    assumed: tuple[str, ...] = Field((), description="What it does not say.")
    model: str
    profile: str | None = Field(None, description="Profile file of the actors instead.")
    work: Work
    lengths: Lengths
    actors: Actors
    tail: Tail | None = None
    held: tuple[Held, ...] = ()
    phases: Phases = Phases()
    network: Network = Network()
    spot: Spot | None = None
    value: Value = Value()
    policies: tuple[str, ...] = ()
    seeds: Annotated[int, Field(ge=1, le=1000)] = 20
    first_seed: Annotated[int, Field(ge=0)] = Field(
        1000, description="Below 1000: those that were used while tuning."
    )

    @property
    def samples(self) -> int:
        """Of a step."""
        return self.work.prompts_per_step * self.work.group_size

    @property
    def priced(self) -> bool:
        """Whether dollars can be told."""
        held = [role.per_gpu_hour for role in self.held]
        return self.actors.per_gpu_hour is not None and None not in held


class WrongScenario(Refused):
    """Every field at fault: (pointer, detail)."""

    def __init__(self, faults: list[tuple[str, str]]) -> None:
        super().__init__(
            "; ".join(f"{pointer}: {detail}" for pointer, detail in faults), field=faults[0][0]
        )
        self.faults = faults


def read_scenario(document: object) -> Scenario:
    """Check a parsed document; raises WrongScenario, which names every field at fault."""
    try:
        found = Scenario.model_validate(document, strict=False)
    except ValidationError as error:
        raise WrongScenario([_fault(one) for one in error.errors()]) from None
    if not found.actors.count:
        raise WrongScenario([("/actors/count", "capacity zero: nothing can be decoded")])
    return found


def _fault(one: object) -> tuple[str, str]:
    assert isinstance(one, dict), "pydantic reports dictionaries"
    pointer = "".join(f"/{part}" for part in one["loc"])
    return pointer or "/", str(one["msg"]).removeprefix("Value error, ")
