"""What a reward model's worker judges by: the model itself, many answers at a time.

Loaded by the only process of this service that loads torch.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from ebbtide.data.sources import local_path
from ebbtide.rewards.outcomes import Answer, Judged, Outcome, Unusable, Worth
from ebbtide.spec import ModelReward, RewardSpec
from services.reward.engine.frames import Setup

if TYPE_CHECKING:
    from ebbtide.engines.reward_model import RewardModel


def load(setup: Setup) -> ModelBench:
    """Read the model. Raises Refused where it cannot be had."""
    [component] = RewardSpec.model_validate_json(setup.reward).components
    assert isinstance(component, ModelReward)
    os.environ["OMP_NUM_THREADS"] = str(component.threads)  # before torch is loaded
    from ebbtide.engines.reward_model import RewardModel, identity  # noqa: PLC0415 - loads torch

    folder = local_path(component.uri)
    model = RewardModel(
        folder,
        device=component.device,
        max_tokens=component.max_tokens,
        batch_tokens=component.batch_tokens,
    )
    return ModelBench(model, component, versions={component.name: identity(folder)})


class ModelBench:
    """A reward model that scores batches."""

    def __init__(
        self, model: RewardModel, component: ModelReward, *, versions: Mapping[str, str]
    ) -> None:
        self._model = model
        self._component = component
        self.versions = versions

    def begin(self) -> None:
        """Answers are data to a model: nothing needs bounds."""

    def judge(self, answers: Sequence[Answer]) -> Iterator[Judged]:
        """All together."""
        start = time.perf_counter()
        scores = self._model.scores([(a.prompt, a.response) for a in answers])
        each = (time.perf_counter() - start) / len(answers)
        yield from judgements(answers, scores, each, self._component.max_tokens)


def judgements(
    answers: Sequence[Answer], scores: Sequence[float | None], seconds: float, most: int
) -> list[Judged]:
    """What each answer is worth; one that is too long for the model is nobody's fault."""
    outcomes: list[Outcome] = [
        Unusable(f"the answer with its prompt has over {most} tokens") if s is None else Worth(s)
        for s in scores
    ]
    assert len(outcomes) == len(answers)
    return [Judged((outcome,), (seconds,)) for outcome in outcomes]
