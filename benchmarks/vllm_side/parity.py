"""vLLM's log-probabilities against transformers', before and after weight updates."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.vllm_side.work import PATIENCE, VOCAB, WIDTH, build_model, publish
from ebbtide.engines.policies import INDEX_NAME
from ebbtide.engines.vllm.engine import VllmEngine
from ebbtide.engines.vllm.limits import VllmLimits
from ebbtide.testing.engines import admission, decode

UPDATES, ANSWERS = 20, 16
PROMPT = tuple(range(2, 40))


def updates(rate: float) -> Iterator[Any]:
    """The model at first and after each of 20 random steps of size `rate`; 0: the same again."""
    model = build_model(torch.bfloat16)
    yield model
    for step in range(UPDATES):
        torch.manual_seed(1000 + step)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * rate)
        yield model


def difference(model: Any, answers: Any) -> float:
    """Greatest difference of an answer's log-probabilities from transformers' own."""
    worst = 0.0
    for outcome in answers.values():
        text = torch.tensor([[*PROMPT, *outcome.tokens]])
        with torch.no_grad():
            logits = model(text).logits[0, len(PROMPT) - 1 : -1].float()
        wanted = torch.log_softmax(logits, -1).gather(1, torch.tensor(outcome.tokens)[:, None])
        found = torch.tensor(outcome.logprobs)
        worst = max(worst, float((wanted[:, 0] - found).abs().max()))
    return worst


async def follow(engine: VllmEngine, rate: float, folder: Path, start: int) -> list[float]:
    """The differences before the first and after each update."""
    found = []
    for n, model in enumerate(updates(rate)):
        index = publish(model, folder / str(n), n)
        await engine.load(index.policy, folder / str(n) / INDEX_NAME)
        many = [
            admission(index.policy, seq=start + n * ANSWERS + i, prompt=PROMPT, max_new=32)
            for i in range(ANSWERS)
        ]
        found.append(difference(model, await decode(engine, many, patience=PATIENCE)))
    return found


async def compare(folder: Path) -> dict[str, list[float]]:
    """By size of the updates."""
    engine = VllmEngine(VllmLimits(slots=ANSWERS, width=WIDTH, kv_bytes=128 << 20))
    found = {}
    for number, rate in enumerate((0.0, 0.01)):
        start = number * (UPDATES + 1) * ANSWERS
        found[str(rate)] = await follow(engine, rate, folder / str(number), start)
    await engine.close()
    return found


def main() -> None:
    """Print the differences as JSON."""
    assert max(PROMPT) < VOCAB
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(asyncio.run(compare(Path(folder)))))


if __name__ == "__main__":
    main()
