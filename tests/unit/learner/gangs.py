"""Builds small learners for tests, in this process or as several ranks of their own.

Ranks are forked from a server that has torch and transformers imported once per session.
"""

from __future__ import annotations

import multiprocessing as mp
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import TypeAdapter
from transformers import Qwen2Config, Qwen2ForCausalLM

from ebbtide.rl.batching import partition
from ebbtide.spec import Algorithm, PolicyGradientSpec, PpoSpec, ScheduleSpec, TrainingSpec
from services.learner.core.samples import MicroBatch, Sample, Weighting, pad
from services.learner.core.schedules import Schedule
from services.learner.engine.critic import load_critic
from services.learner.engine.gang import Gang, join
from services.learner.engine.optimiser import Optimiser
from services.learner.engine.policy import WHOLE_BELOW, Policy, load_policy
from services.learner.engine.policy_gradient import PolicyGradient

VOCABULARY = 50


def save_model(folder: Path, *, seed: int = 0, tied: bool = True) -> Path:
    """Write a random Qwen2 of two small layers in Hugging Face format."""
    torch.manual_seed(seed)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        tie_word_embeddings=tied,
        initializer_range=0.2,
    )
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return folder


def algorithm_of(type: str = "grpo", **options: Any) -> PolicyGradientSpec:  # noqa: A002
    """The algorithm of that type with these options."""
    found = TypeAdapter(Algorithm).validate_python({"type": type, **options})
    assert isinstance(found, PolicyGradientSpec)
    return found


class Parts:
    """A learner's engine, whole, on one rank."""

    def __init__(
        self,
        gang: Gang,
        model: Path,
        *,
        algorithm: dict[str, Any] | None = None,
        training: dict[str, Any] | None = None,
        layered: bool = False,
        checkpointing: bool = False,
        offload: bool = False,
        backend: Any = "",
    ) -> None:
        spec = algorithm_of(**(algorithm or {}))
        sizes = TrainingSpec(**{"total_steps": 10, "learning_rate": 1e-2, **(training or {})})
        self.gang = gang
        whole_below = 0 if layered else WHOLE_BELOW
        self.policy = load_policy(
            model,
            gang,
            mixed_precision=False,
            checkpointing=checkpointing,
            offload=offload,
            backend=backend,
            whole_below=whole_below,
            lora=sizes.lora,
        )
        reference: Policy | None = None
        if spec.kl_coefficient:
            reference = load_policy(
                model, gang, mixed_precision=False, frozen=True, whole_below=whole_below
            )
        schedule = Schedule(ScheduleSpec(), sizes.learning_rate, sizes.total_steps)
        self.optimiser = Optimiser(self.policy.module, sizes, schedule, gang=gang)
        critic = None
        if isinstance(spec, PpoSpec):
            critic = load_critic(model, gang, spec.critic, sizes, mixed_precision=False)
        self.learner = PolicyGradient(
            critic=critic,
            gang=gang,
            policy=self.policy,
            reference=reference,
            optimiser=self.optimiser,
            algorithm=spec,
            training=sizes,
        )

    def parameters(self) -> dict[str, np.ndarray]:
        """Full parameters by name."""
        return parameters_of(self.policy.module)

    def gradients(self) -> dict[str, np.ndarray]:
        """Full gradients by name."""
        named = self.policy.module.named_parameters()
        return {name: _full(p.grad) for name, p in named if p.grad is not None}


def parameters_of(module: torch.nn.Module) -> dict[str, np.ndarray]:
    """Full parameters by name."""
    return {name: _full(p.detach()) for name, p in module.named_parameters()}


def _full(tensor: Any) -> np.ndarray:
    whole = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return whole.clone().numpy()


def close(a: dict[str, np.ndarray], b: dict[str, np.ndarray], limit: float = 1e-5) -> bool:
    """Whether all parts agree, relative to the largest element of all."""
    scale = max(float(np.abs(v).max()) for v in a.values())
    return a.keys() == b.keys() and all(np.abs(a[k] - b[k]).max() <= limit * scale for k in a)


def samples(
    n: int, *, seed: int = 0, aggregation: str = "token-mean", limit: int = 16
) -> list[Sample]:
    """Random sequences with gaps in their masks and advantages of both signs."""
    rng = np.random.default_rng(seed)
    drawn = []
    for i in range(n):
        prompt, response = int(rng.integers(1, 9)), int(rng.integers(1, limit))
        mask = rng.random(response) < 0.8
        mask[-1] = True
        chosen = np.flatnonzero(mask) + prompt
        tokens = rng.integers(0, VOCABULARY, prompt + response)
        logprobs = np.full(len(chosen), -3.9, np.float32)
        drawn.append((tokens, chosen, logprobs, 1.5 if i % 2 else -0.7))
    total = sum(len(chosen) for _, chosen, _, _ in drawn)
    weighting = Weighting(aggregation, total, n, limit)
    return [Sample(t, c, lp, a, weighting.of(len(c))) for t, c, lp, a in drawn]


def lay(rows: list[Sample], *, rank: int = 0, ranks: int = 1, limit: int = 64) -> list[MicroBatch]:
    """This rank's micro-batches of at most `limit` padded tokens."""
    places, count = partition([len(s.tokens) for s in rows], ranks=ranks, limit=limit)
    return [
        pad([s for s, place in zip(rows, places, strict=True) if place == (rank, j)])
        for j in range(count)
    ]


def run_ranks(
    size: int, work: Callable[..., Any], folder: Path, *arguments: Any, timeout: float = 110.0
) -> list[Any]:
    """Run `work(gang, *arguments)` on `size` ranks; returns their results, or their errors."""
    context = mp.get_context("forkserver")
    context.set_forkserver_preload(["tests.unit.learner.gangs"])
    answers = context.Queue()
    meeting = f"file://{folder}/meeting"
    ranks = [
        context.Process(target=_rank, args=((rank, size), meeting, work, arguments, answers))
        for rank in range(size)
    ]
    for process in ranks:
        process.start()
    try:
        found = dict(answers.get(timeout=timeout) for _ in ranks)
    finally:
        for process in ranks:
            process.join(10)
            process.kill()
    return [found[rank] for rank in range(size)]


def _rank(
    place: tuple[int, int], meeting: str, work: Callable[..., Any], arguments: Any, answers: Any
) -> None:
    torch.set_num_threads(1)
    rank, size = place
    gang = join(rank, size, meeting, device="cpu", timeout=20)
    try:
        answers.put((rank, work(gang, *arguments)))
    except Exception as error:  # noqa: BLE001 - the test looks at it
        answers.put((rank, repr(error)))
    gang.leave()
