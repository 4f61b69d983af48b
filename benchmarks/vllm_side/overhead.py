"""Tokens per second through the engine port and of the same AsyncLLM called directly."""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path

import torch
from vllm import SamplingParams
from vllm.inputs.engine import tokens_input
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from benchmarks.vllm_side.work import (
    GROUP,
    PATIENCE,
    SAMPLES,
    WIDTH,
    Work,
    build_model,
    make_work,
    publish,
)
from ebbtide.engines.policies import INDEX_NAME
from ebbtide.engines.vllm.engine import VllmEngine
from ebbtide.engines.vllm.limits import VllmLimits
from ebbtide.testing.engines import admission, decode
from ebbtide.wire import PolicyRef

TURNS = 5


async def by_port(engine: VllmEngine, policy: PolicyRef, work: Work, turn: int) -> None:
    """As a decode actor does: events of new tokens, log-probabilities, one end each."""
    many = [
        admission(
            policy,
            seq=turn * SAMPLES + i,
            prompt=work.prompts[i // GROUP],
            max_new=int(work.lengths[i]),
        )
        for i in range(SAMPLES)
    ]
    await decode(engine, many, patience=PATIENCE)


async def directly(llm: AsyncLLM, work: Work, turn: int) -> None:
    """As vLLM's own examples do: one `generate` a sample, of which the last output is kept."""

    async def one(i: int) -> None:
        params = SamplingParams(
            seed=i,
            max_tokens=int(work.lengths[i]),
            ignore_eos=True,
            logprobs=0,
            detokenize=False,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )
        prompt = tokens_input(list(work.prompts[i // GROUP]), cache_salt=f"turn {turn}")
        async for _ in llm.generate(prompt, params, f"raw-{turn}-{i}"):
            pass

    await asyncio.gather(*(one(i) for i in range(SAMPLES)))


async def race(folder: Path) -> list[tuple[float, float]]:
    """Tokens per second (through the port, directly), turn by turn; the first turn warms up."""
    index = publish(build_model(torch.float32), folder, 0)
    engine = VllmEngine(VllmLimits(slots=SAMPLES, width=WIDTH, kv_bytes=256 << 20))
    speeds = []
    for turn in range(TURNS + 1):
        work = make_work(turn)
        await engine.load(index.policy, folder / INDEX_NAME)  # neither finds a prompt computed
        began = time.perf_counter()
        await by_port(engine, index.policy, work, turn)
        ours = work.tokens / (time.perf_counter() - began)
        raw = await engine._call(_timed(engine, work, turn))  # noqa: SLF001 - the very same vLLM
        speeds.append((ours, work.tokens / raw))
    await engine.close()
    return speeds[1:]


async def _timed(engine: VllmEngine, work: Work, turn: int) -> float:
    served = engine._desk._served  # noqa: SLF001
    assert served is not None, "a policy was loaded"
    began = time.perf_counter()
    await directly(served._llm, work, turn)  # noqa: SLF001
    return time.perf_counter() - began


def main() -> None:
    """Print the speeds as JSON."""
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(race(Path(folder)))))


if __name__ == "__main__":
    main()
