"""A worker that holds a reward model and scores batches (`python -m services.reward.engine.model_worker`).

Speaks as `worker` does, and like it has a guard above it. The only process of this service that
loads torch.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

from ebbtide.data.sources import local_path
from ebbtide.errors import Refused
from ebbtide.rewards.outcomes import Answer, Judged, Outcome, Unusable, Worth
from ebbtide.spec import ModelReward, RewardSpec
from services.reward.engine import guard
from services.reward.engine.frames import Batch, Ready, Setup, Unfit, read_frame, write_frame


def main() -> int:
    """The guard's exit status and, in its child, the worker's."""
    worker = guard.fork()
    return guard.watch(worker) if worker else _work()


def _work() -> int:
    out = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    source = sys.stdin.buffer
    setup = read_frame(source)
    assert isinstance(setup, Setup)
    [component] = RewardSpec.model_validate_json(setup.reward).components
    assert isinstance(component, ModelReward)
    os.environ["OMP_NUM_THREADS"] = str(component.threads)  # before torch is loaded
    try:
        from ebbtide.engines.reward_model import (  # noqa: PLC0415 - it loads torch
            RewardModel,
            identity,
        )

        folder = local_path(component.uri)
        model = RewardModel(
            folder,
            device=component.device,
            max_tokens=component.max_tokens,
            batch_tokens=component.batch_tokens,
        )
    except Refused as error:
        write_frame(out, Unfit(str(error)))
        return 1
    write_frame(out, Ready({component.name: identity(folder)}))
    while isinstance(batch := read_frame(source), Batch):
        start = time.perf_counter()
        scores = model.scores([(a.prompt, a.response) for a in batch.answers])
        each = (time.perf_counter() - start) / len(batch.answers)
        for judged in judgements(batch.answers, scores, each, component.max_tokens):
            write_frame(out, judged)
    return 0


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


if __name__ == "__main__":
    sys.exit(main())
