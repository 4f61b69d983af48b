"""What vLLM alone must be watched for: its caches, its tied head, its seeds, its end."""

from __future__ import annotations

import math
import os
import signal
from typing import Any

import msgspec
import pytest
import torch

from ebbtide.errors import Permanent, Refused
from ebbtide.ports import Admission
from ebbtide.testing.engines import admission, collect, decode, outcomes
from ebbtide.testing.tiny_models import Tiny, publish_tiny, qwen2
from ebbtide.wire import unpack_floats
from tests.contract.engines.benches import BATCHED, HAS_VLLM, Bench, settle, start_vllm

pytestmark = pytest.mark.skipif(not HAS_VLLM, reason="make setup-vllm test-vllm")
LONG = tuple(range(2, 60)) + tuple(range(2, 20))
"""Two whole blocks of vLLM's and some tokens."""


def with_step(one: Admission, step: int) -> Admission:
    key = msgspec.structs.replace(one.assign.key, step_issued=step)
    return msgspec.structs.replace(one, assign=msgspec.structs.replace(one.assign, key=key))


async def shared_by(bench: Bench, one: Admission) -> int:
    before = bench.engine.stats().prefill_shared
    await decode(bench.engine, [one])
    return bench.engine.stats().prefill_shared - before


def worst(tiny: Tiny, prompt: tuple[int, ...], outcome: Any, temperature: float = 1.0) -> float:
    """Greatest difference of an answer's log-probabilities from transformers'."""
    text = [*prompt, *outcome.tokens]
    scores = torch.log_softmax(tiny.logits(text)[len(prompt) - 1 : -1] / temperature, dim=-1)
    wanted = scores.gather(1, torch.tensor(outcome.tokens)[:, None])[:, 0]
    return max(abs(a - float(b)) for a, b in zip(outcome.logprobs, wanted, strict=True))


async def test_no_text_is_taken_from_another_policys_cache(served: Bench) -> None:
    first = [admission(served.policy, seq=i, prompt=LONG) for i in range(2)]
    assert await shared_by(served, first[0]) == 0
    assert await shared_by(served, first[1]) == 64
    await served.engine.load(served.other.policy, served.other.path)
    other = admission(served.other.policy, seq=2, prompt=LONG)
    assert await shared_by(served, other) == 0


async def test_nor_from_its_own_of_an_earlier_load(served: Bench) -> None:
    await decode(served.engine, [admission(served.policy, prompt=LONG)])
    await served.engine.load(served.policy, served.tiny.path)
    assert await shared_by(served, admission(served.policy, seq=1, prompt=LONG)) == 0


async def test_even_if_the_cache_were_not_emptied_the_policy_is_in_its_keys(served: Bench) -> None:
    desk = served.engine._desk  # type: ignore[attr-defined]
    await decode(served.engine, [admission(served.policy, prompt=LONG)])
    desk._policy = served.other.policy  # as if the load had left the cache as it was
    assert await shared_by(served, admission(served.other.policy, seq=1, prompt=LONG)) == 0


@pytest.mark.parametrize("tied", [True, False])
async def test_after_each_of_many_loads_the_head_is_the_new_one(
    vllm: Any, tmp_path_factory: pytest.TempPathFactory, *, tied: bool
) -> None:
    folder, engine = tmp_path_factory.mktemp("heads"), start_vllm() if not tied else vllm
    config = qwen2(head=32, tied=tied)
    tinies = [publish_tiny(folder / str(n), config=config, seed=n, n=n) for n in range(3)]
    for turn, tiny in enumerate([*tinies, *tinies[:2]]):
        loaded = await engine.load(tiny.policy, tiny.path)
        wanted = unpack_floats(tiny.index.probe_logprobs)
        assert unpack_floats(loaded.probe_logprobs) == pytest.approx(wanted, abs=1e-4)
        answer = await decode(engine, [admission(tiny.policy, seq=turn, max_new=20)])
        assert worst(tiny, (5, 6, 7), answer[turn]) < 1e-4
    await (settle(engine) if tied else engine.close())


@pytest.mark.parametrize("temperature", [0.7, 1.6])
async def test_log_probabilities_are_of_the_distribution_drawn_from(
    served: Bench, temperature: float
) -> None:
    one = admission(served.policy, max_new=30, temperature=temperature)
    outcome = (await decode(served.engine, [one]))[0]
    assert worst(served.tiny, (5, 6, 7), outcome, temperature) < 1e-4


async def test_without_temperature_the_likeliest_is_taken_and_scored_at_one(served: Bench) -> None:
    outcome = (await decode(served.engine, [admission(served.policy, max_new=30, temperature=0)]))[
        0
    ]
    assert worst(served.tiny, (5, 6, 7), outcome) < 1e-4
    text = [5, 6, 7, *outcome.tokens]
    assert served.tiny.logits(text)[2:-1].argmax(-1).tolist() == outcome.tokens


async def test_a_moved_sample_does_not_draw_the_noise_of_its_beginning_again() -> None:
    from ebbtide.engines.vllm.requests import seed_of  # noqa: PLC0415 - not everywhere installed

    assert seed_of(b"k", 0) != seed_of(b"k", 7) != seed_of(b"l", 7)
    assert all(0 <= seed_of(b"k", n) < 1 << 63 for n in range(20))


async def test_what_an_earlier_step_issued_is_served_first(served: Bench) -> None:
    busy = [with_step(admission(served.policy, seq=i, max_new=40), 1) for i in range(4)]
    later = with_step(admission(served.policy, seq=4, max_new=30), 9)
    sooner = with_step(admission(served.policy, seq=5, max_new=30), 2)
    for one in (*busy, later, sooner):
        served.engine.submit(one)
    ends = [e.dispatch.seq for e in await collect(served.engine, 6) if hasattr(e, "tokens")]
    assert ends.index(5) < ends.index(4)


async def test_a_stop_id_ends_no_sample_that_does_not_name_it(served: Bench) -> None:
    free = (await decode(served.engine, [admission(served.policy, max_new=60)]))[0]
    ids = (free.tokens[9], free.tokens[20])
    again = admission(served.policy, seq=1, noise=b"noise 0", max_new=60, stops=ids)
    stopped = (await decode(served.engine, [again]))[1]
    first = min(free.tokens.index(i) for i in ids)
    assert (stopped.tokens, stopped.finished.finish) == (free.tokens[: first + 1], "stop")


async def test_logits_that_are_not_finite_fail_the_sample(
    vllm: Any, wide: tuple[Tiny, Tiny], tmp_path_factory: pytest.TempPathFactory
) -> None:
    def spoil(model: Any) -> None:
        model.model.norm.weight[0] = math.inf

    folder = tmp_path_factory.mktemp("spoilt")
    spoilt = publish_tiny(folder, config=qwen2(head=32), n=2, spoil=spoil)
    await vllm.load(spoilt.policy, spoilt.path)
    failure = (await decode(vllm, [admission(spoilt.policy)]))[0].failure
    assert (failure.code, "finite" in failure.detail) == ("engine", True)
    await settle(vllm)


def kill(engine: Any) -> None:
    manager = engine._desk._served._llm.engine_core.resources.engine_manager
    os.kill(manager.processes[0].pid, signal.SIGKILL)


async def test_an_engine_whose_vllm_died_fails_what_it_had_and_then_says_so(
    wide: tuple[Tiny, Tiny],
) -> None:
    engine, (tiny, _) = start_vllm(), wide
    await engine.load(tiny.policy, tiny.path)
    for seq in range(2):
        engine.submit(admission(tiny.policy, seq=seq, max_new=90))
    while not await engine.events(timeout=1.0):
        pass
    kill(engine)
    ends = outcomes(await collect(engine, 2))
    assert [ends[seq].failure.code for seq in range(2)] == ["engine", "engine"]
    with pytest.raises(Permanent, match="died"):  # or its actor would fail all that comes
        await engine.events(timeout=60.0)
    await engine.close()


async def test_a_vllm_that_died_while_idle_is_started_again_by_the_next_load(
    served: Bench,
) -> None:
    await decode(served.engine, [admission(served.policy)])
    kill(served.engine)
    while not served.engine._desk._served.broken:  # type: ignore[attr-defined]
        await served.engine.events(timeout=0.1)
    await served.engine.load(served.policy, served.tiny.path)
    assert (await decode(served.engine, [admission(served.policy, seq=1)]))[1].finished


async def test_prompts_beyond_one_forward_wait_for_the_next(served: Bench) -> None:
    """Cut in pieces, a seeded one would end vLLM on a CPU."""
    many = [
        admission(served.policy, seq=i, prompt=(*LONG[i:], *LONG[:i]), max_new=4) for i in range(4)
    ]
    assert sum(len(LONG) for _ in many) > 2 * BATCHED
    ends = await decode(served.engine, many)
    assert all(end.finished for end in ends.values())


async def test_vllms_own_metrics_are_shown(served: Bench) -> None:
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415

    from ebbtide.engines.vllm.metrics import PassedThrough  # noqa: PLC0415

    registry = CollectorRegistry()
    registry.register(PassedThrough())
    await decode(served.engine, [admission(served.policy)])
    text = generate_latest(registry).decode()
    assert "vllm:generation_tokens_total" in text
    assert "python_gc" not in text


async def test_a_model_that_does_not_fit_is_refused_before_anything_starts(
    vllm: Any, tinies: tuple[Tiny, Tiny]
) -> None:
    with pytest.raises(Refused, match="head of size 8"):
        await vllm.load(tinies[0].policy, tinies[0].path)
