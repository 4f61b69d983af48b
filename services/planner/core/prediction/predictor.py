"""What a length predictor is told, asked, and must be able to do (pure).

Who calls it: the planner (and the simulator) with facts in the order of the ledger. The state is
a function of that order alone: told the same again, a predictor is the same again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from ebbtide.errors import Refused
from services.planner.core.prediction.forecast import Forecast


class Observation(msgspec.Struct, frozen=True):
    """One answer that came to an end: `length` tokens, or more had it not been cut (`censored`).

    `group`: the number of its group in `step`; a group holds the samples of one prompt.
    """

    prompt_id: str
    prompt_tokens: int
    task: str
    step: int
    group: int
    length: int
    censored: bool = False


@dataclass(frozen=True)
class Queries:
    """Samples of one step whose lengths are asked: m groups, n samples.

    `prompt_ids`, `tasks`: m each. `prompt_tokens`, `groups`: int (m,), tokens of the prompt and
    number of the group in the step. `rows`: int (n,), which of the m each sample belongs to.
    `done`: int (n,), tokens each sample has written without an end; None: none has begun.

    `done` should cover all running samples of a group: that seven others have already written
    more than the first to finish says that the first was short, not that the group is.
    """

    step: int
    prompt_ids: Sequence[str]
    tasks: Sequence[str]
    prompt_tokens: NDArray[np.int32]
    groups: NDArray[np.int32]
    rows: NDArray[np.intp]
    done: NDArray[np.int32] | None = None

    def __len__(self) -> int:
        return len(self.rows)


class Predictor(Protocol):
    """From answers seen to the distribution of lengths to come."""

    def observe(self, observation: Observation) -> None:
        """Take one ended answer in; one of a later step ends the open step first."""

    def forecast(self, queries: Queries) -> Forecast:
        """Whole lengths (not the rest) of the n samples, given history and ended siblings.

        `Forecast.residual(done)` conditions a sample on what itself has written; here `done`
        serves as evidence on its siblings only.
        """

    def end_step(self, step: int) -> None:
        """Every answer of this step is in: history takes them, the siblings' state is dropped."""

    def dump(self) -> bytes:
        """The whole state (MessagePack)."""

    def load(self, state: bytes) -> None:
        """Become the predictor that wrote this state; its settings are the caller's."""


def check(observation: Observation) -> None:
    """Refuse an observation that no real answer gives."""
    if observation.length < 0:
        raise Refused("a length is a count of tokens, at least 0", field="/length")
    if observation.prompt_tokens < 0:
        raise Refused("a prompt has at least 0 tokens", field="/prompt_tokens")
    if observation.group < 0 or observation.step < 0:
        raise Refused("steps and groups count from 0", field="/group")
