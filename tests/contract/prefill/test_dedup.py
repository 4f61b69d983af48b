"""Two actors and the prefill service, each with an engine of its own, over shared memory."""

from __future__ import annotations

import asyncio
from pathlib import Path

import torch

from tests.worlds.prefilling import ACTORS, PROMPT, SIBLINGS, Stand, drawn


async def test_siblings_on_two_actors_have_their_prompt_computed_once(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    stand = Stand(tmp_path)
    async with asyncio.timeout(100.0), stand.actor("a0"), stand.actor("a1"), stand.service():
        shared = drawn(await stand.siblings(kv=True))
        service = await stand.beat(computed=1, granted=2)
        actors = [(await stand.job.beat(pod)).stats for pod in ACTORS]
        assert service.stats.prefill_tokens == PROMPT - 1
        assert [stats.prefill_tokens for stats in actors] == [0, 0]
        assert [stats.prefill_imported for stats in actors] == [PROMPT - 1] * 2
        assert [stats.prefill_shared for stats in actors] == [3 * (PROMPT - 1)] * 2
    stand = Stand(tmp_path / "colocated")
    async with asyncio.timeout(100.0), stand.actor("a0"), stand.actor("a1"):
        assert drawn(await stand.siblings(kv=False)) == shared


async def test_without_the_service_actors_compute_and_nothing_is_lost(tmp_path: Path) -> None:
    torch.set_num_threads(1)
    stand = Stand(tmp_path)
    async with asyncio.timeout(100.0), stand.actor("a0"), stand.actor("a1"):
        async with stand.service():
            pass
        rollouts = await stand.siblings(kv=True)
        assert len(rollouts) == SIBLINGS
        actors = [(await stand.job.beat(pod)).stats for pod in ACTORS]
        assert [stats.prefill_tokens for stats in actors] == [PROMPT - 1] * 2
