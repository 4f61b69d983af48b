"""Samples by what they are alike in, from the ledger."""

from __future__ import annotations

from typing import Any

import pytest

from ebbtide.slices import BUCKETS, Seen, bucket, figures_of, rarest_as_other
from ebbtide.wire import (
    Accepted,
    GroupPlan,
    PromptRef,
    SampleKey,
    Scored,
    StepOpened,
    StepPlan,
    Value,
)
from tests.unit.gateway.test_artifacts_api import HAND, NOWHERE, POLICY, UID, get
from tests.worlds.gateway import World

DIGESTS = (("dataset", "set-of-prompts"), ("eval_dataset", "held-out-set-1"))


def opened(step: int, *tasks: str) -> StepOpened:
    """The last group is for evaluation."""
    last = len(tasks) - 1
    groups = tuple(
        GroupPlan(
            n, f"p{n}", PromptRef(NOWHERE, 0), 2, "eval" if n == last else "train", 1, 8, 3, t
        )
        for n, t in enumerate(tasks)
    )
    return StepOpened(StepPlan(step, POLICY, groups, actors=1, data_cursor=0, digests=DIGESTS))


def sample(step: int, group: int, tokens: int, reward: float, judge: str = "v1") -> list[Any]:
    key = SampleKey(UID, step, group, 0)
    finish = "length" if tokens > 100 else "stop"
    accepted = Accepted(key, HAND, NOWHERE, POLICY, tokens, finish)
    return [accepted, Scored(key, Value(reward, (), "format" if reward == 0 else ""), judge)]


async def a_world() -> World:
    world = World()
    await world.put_job()
    first = [opened(0, "sums", "words", "sums"), *sample(0, 0, 10, 1.0), *sample(0, 1, 70, 0.0)]
    await world.put_ledger(
        UID,
        [*first, *sample(0, 2, 20, 0.5)],
        [opened(1, "sums", "words", "sums"), *sample(1, 0, 300, 0.5, "v2")],
    )
    return world


async def sliced(**query: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await get(await a_world(), "slices", **query))["items"]
    return found


async def test_the_last_step_is_told_apart_by_task() -> None:
    (one,) = await sliced()
    assert (one["key"], one["samples"], one["truncated"]) == ({"task": "sums"}, 1, 1)


async def test_steps_are_joined_and_told_apart_by_what_is_asked() -> None:
    found = await sliced(by=["task", "reward"], firstStep=0, lastStep=1, purpose="train")
    told = [(*one["key"].values(), one["samples"], one["reward"]) for one in found]
    assert told == [("sums", "v1", 1, 1.0), ("sums", "v2", 1, 0.5), ("words", "v1", 1, 0.0)]
    assert [one["faulty"] for one in found] == [0, 0, 1]
    assert [one["passed"] for one in found] == [1, 0, 0]


async def test_lengths_are_told_apart_by_the_sign_of_the_reward() -> None:
    found = await sliced(by=["sign"], firstStep=0, lastStep=0, purpose="train")
    assert [(one["key"]["sign"], one["tokens"]) for one in found] == [
        ("positive", 10),
        ("zero", 70),
    ]


async def test_held_out_samples_are_of_their_own_prompt_set() -> None:
    found = await sliced(by=["purpose", "prompts"], firstStep=0, lastStep=0)
    assert [tuple(one["key"].values()) for one in found] == [
        ("eval", "held-out-set"),
        ("train", "set-of-promp"),
    ]


async def test_lengths_come_in_order_of_size() -> None:
    found = await sliced(by="length", firstStep=0, lastStep=1)
    assert [one["key"]["length"] for one in found] == ["1-64", "65-256", "257-1024"]
    assert [one["samples"] for one in found] == [2, 1, 1]


@pytest.mark.parametrize(
    ("query", "status"),
    [({"by": "colour"}, 422), ({"firstStep": 0, "lastStep": 200}, 422), ({"lastStep": 7}, 404)],
)
async def test_what_cannot_be_told_apart_is_refused(query: dict[str, Any], status: int) -> None:
    world = await a_world()
    async with world.client() as api:
        assert (await api.get("/v1/jobs/demo/slices", params=query)).status_code == status


@pytest.mark.parametrize(("tokens", "place"), [(1, 0), (64, 0), (65, 1), (16384, 4), (16385, 5)])
def test_a_bucket_ends_at_its_bound(tokens: int, place: int) -> None:
    assert bucket(tokens) == BUCKETS[place]


def test_a_sample_without_a_value_counts_and_takes_no_part_in_the_mean() -> None:
    found = figures_of([Seen(4, "stop", None), Seen(8, "length", 0.5)], threshold=0.5)
    assert (found.samples, found.valued, found.reward, found.tokens) == (2, 1, 0.5, 6.0)
    assert found.passed == 1


def test_the_rarest_values_are_named_together() -> None:
    names = rarest_as_other(["a", "b", "b", "c", "d", "d"], most=2)
    assert names == {"b": "b", "d": "d", "a": "other", "c": "other"}
