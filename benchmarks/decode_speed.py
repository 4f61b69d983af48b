"""`decode_speed`: the torch engine against a plain transformers loop, on one thread.

Both draw the same 256 samples: 32 prompts of 8, a 0.3M-parameter Qwen2, log-normal response
lengths with a median of 21 and at most 128 tokens, given as limits. The plain loop is what a
script does: one left-padded batch with a growing cache that runs until its longest row is done.
The figure is the median ratio of turns taken one after the other, so that a busy machine slows
both.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModelForCausalLM, DynamicCache, Qwen2Config

from benchmarks.harness import Measured
from ebbtide.engines.policies import INDEX_NAME
from ebbtide.engines.publication import tied_names, write_publication
from ebbtide.engines.torch.decoder import Limits
from ebbtide.engines.torch.engine import TorchEngine
from ebbtide.testing.engines import admission, decode
from ebbtide.wire import PolicyRef

SAMPLES, GROUP, MOST = 256, 8, 128
TURNS = 5
CONFIG = Qwen2Config(
    vocab_size=80,
    hidden_size=128,
    intermediate_size=256,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    max_position_embeddings=256,
    tie_word_embeddings=True,
)


@dataclass(frozen=True)
class Work:
    """What is to be drawn: sample i has prompt i // GROUP and `lengths[i]` tokens."""

    prompts: Sequence[NDArray[np.int64]]
    lengths: NDArray[np.int64]

    @property
    def tokens(self) -> int:
        return int(self.lengths.sum())


def make_work(seed: int) -> Work:
    """Prompts of 6 to 54 tokens."""
    rng = np.random.default_rng(seed)
    prompts = [rng.integers(2, 80, size=rng.integers(6, 55)) for _ in range(SAMPLES // GROUP)]
    lengths = np.exp(rng.normal(np.log(21), 0.45, size=SAMPLES)).astype(np.int64)
    return Work(prompts, lengths.clip(1, MOST))


async def by_engine(engine: TorchEngine, policy: PolicyRef, work: Work, turn: int) -> None:
    """Draw `work` through the port, as a decode actor does."""
    samples = [
        admission(
            policy,
            seq=turn * SAMPLES + i,
            prompt=[int(token) for token in work.prompts[i // GROUP]],
            max_new=int(work.lengths[i]),
        )
        for i in range(SAMPLES)
    ]
    await decode(engine, samples)


@torch.inference_mode()
def by_plain_loop(model: Any, work: Work) -> None:
    """Draw `work` as one batch, left-padded, until the longest row is done."""
    ids, mask = _padded(work)
    cache, positions = DynamicCache(), (mask.cumsum(-1) - 1).clamp(min=0)
    for _ in range(int(work.lengths.max())):
        out = model(
            input_ids=ids, attention_mask=mask, position_ids=positions, past_key_values=cache
        )
        logprobs = torch.log_softmax(out.logits[:, -1], dim=-1)
        ids = torch.multinomial(logprobs.exp(), 1)
        logprobs.gather(1, ids)
        mask = torch.cat([mask, mask.new_ones(SAMPLES, 1)], dim=1)
        positions = positions[:, -1:] + 1


def _padded(work: Work) -> tuple[torch.Tensor, torch.Tensor]:
    width = max(len(prompt) for prompt in work.prompts)
    ids = torch.zeros(SAMPLES, width, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    for i in range(SAMPLES):
        prompt = work.prompts[i // GROUP]
        ids[i, width - len(prompt) :] = torch.from_numpy(prompt)
        mask[i, width - len(prompt) :] = 1
    return ids, mask


async def _race(folder: Path) -> dict[str, list[float]]:
    """Tokens per second of each way, turn by turn; the first turn warms up."""
    build: Any = AutoModelForCausalLM.from_config
    model = build(CONFIG).eval()
    model.config.save_pretrained(folder)
    index = write_publication(
        folder,
        model.state_dict(),
        tied_names(model),
        policy_n=0,
        attempt=1,
        probe_tokens=b"",
        probe_logprobs=b"",
    )
    engine = TorchEngine(Limits(slots=SAMPLES, width=MOST + 64))
    await engine.load(index.policy, folder / INDEX_NAME)
    speeds: dict[str, list[float]] = {"torch engine": [], "plain loop": []}
    for turn in range(TURNS + 1):
        work = make_work(turn)
        began = time.perf_counter()
        await by_engine(engine, index.policy, work, turn)
        between = time.perf_counter()
        by_plain_loop(model, work)
        speeds["torch engine"].append(work.tokens / (between - began))
        speeds["plain loop"].append(work.tokens / (time.perf_counter() - between))
    await engine.close()
    return {way: those[1:] for way, those in speeds.items()}


def measure() -> Measured:
    """The median ratio of the engine's speed to the plain loop's."""
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    with tempfile.TemporaryDirectory() as folder:
        speeds = asyncio.run(_race(Path(folder)))
    engine, plain = speeds["torch engine"], speeds["plain loop"]
    ratio = statistics.median(e / p for e, p in zip(engine, plain, strict=True))
    rows = [(way, statistics.median(those), max(those)) for way, those in speeds.items()]
    return Measured(ratio, ("way", "tokens per second", "best turn"), rows)
