"""Small job configurations and data for planner tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from ebbtide.wire import DatasetIndex, PolicyRef, Ref, SampleKey, digest
from services.planner.core.config import (
    Data,
    Deadlines,
    Economy,
    Evaluation,
    Grpo,
    JobConfig,
    Patience,
    Recorded,
    Sft,
)

UID = "job-1"


def a_ref(name: str) -> Ref:
    return Ref(name, digest(name.encode()), len(name))


def an_index(rows: int, name: str) -> DatasetIndex:
    chunks = tuple(a_ref(f"{name}-{n}") for n in range(-(-rows // 4)))
    return DatasetIndex(digest(name.encode()), rows, 4, chunks, (), "t", "c", (0,), 0, 16)


def some_data(rows: int = 5, eval_rows: int = 2) -> Data:
    held_out = an_index(eval_rows, "eval") if eval_rows else None
    return Data(an_index(rows, "train"), a_ref("train-index"), held_out)


GRPO = Grpo(
    prompts=2,
    group_size=2,
    temperature=1.0,
    max_new_tokens=6,
    scale="none",
    drop_zero=False,
    skip_zero=True,
    replicas=2,
    slots=2,
    score_tries=3,
    evaluation=Evaluation(every=2, prompts=2, samples=1, temperature=1.0, threshold=1.0),
)

NO_EVAL = msgspec.structs.replace(GRPO, evaluation=None)


def a_config(*, steps: int = 2, work: Grpo | Sft | Recorded = GRPO, **changes: Any) -> JobConfig:
    config = JobConfig(
        job_uid=UID,
        seed=7,
        shuffle=True,
        total_steps=steps,
        work=work,
        ranks=2,
        microbatch_tokens=64,
        checkpoint_every=1,
        retain=1,
        save_on_suspend=True,
        deadlines=Deadlines(step=1000.0, score=20.0, learn=500.0),
        economy=Economy("USD", {"decode": 1.0, "learner": 2.0}, "value-of-time", 0.0),
        patience=Patience(),
    )
    return msgspec.structs.replace(config, **changes)


def a_policy(n: int, attempt: int = 1, content: str = "") -> PolicyRef:
    return PolicyRef(n, attempt, digest(f"policy {n} {content}".encode()))


def usual_length(key: SampleKey, limit: int) -> int:
    """Tokens of an answer, unless a test says otherwise; beyond the limit it is cut."""
    return 1 + (3 * key.group + 5 * key.index + key.step_issued) % limit


def short_words(key: SampleKey) -> int:
    """Tokens of what an environment says after a turn; some episodes have one turn, some three."""
    return (key.group + key.index + key.turn) % 3 if key.index or key.group else 1


def short_turns(key: SampleKey, _: int) -> int:
    """Tokens of a turn, where a few of them fit the limit."""
    return 1 + (key.group + 2 * key.index + key.turn) % 4


def usual_worth(key: SampleKey) -> float:
    """The reward of an answer: no group is without variance."""
    return float((key.group + key.index) % 2)


def flat_worth(*groups: int) -> Callable[[SampleKey], float]:
    """Rewards with which these groups have no variance."""
    return lambda key: 1.0 if key.group in groups else usual_worth(key)
