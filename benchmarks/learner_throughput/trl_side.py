"""The same updates by TRL's GRPOTrainer; run by the interpreter of TRL's own environment.

Knows nothing of ebbtide. Reads `policy` and rollouts.npz, prints one JSON line: processor seconds
of an update, MiB that memory grew at most.
"""
# ruff: noqa: SLF001, S106 - the trainer's loss is not public; a token is no password

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer


def main(folder: Path, rows: int, updates: int) -> None:
    """Measure updates over micro-batches of `rows`; the first does not count."""
    data = np.load(folder / "rollouts.npz")
    inputs = {name: torch.from_numpy(data[name]) for name in data.files}
    total = len(data["advantages"])
    trainer = make_trainer(folder, rows, total, inputs["completion_ids"].shape[1])
    trainer.current_gradient_accumulation_steps = total // rows
    optimiser = torch.optim.AdamW(trainer.model.parameters(), lr=1e-6)
    before, times = peak(), []
    for _ in range(updates):
        began = time.process_time()
        update(trainer, inputs, rows, optimiser)
        times.append(time.process_time() - began)
    print(json.dumps({"seconds": min(times[1:]), "mib": peak() - before}))


def update(trainer: GRPOTrainer, inputs: dict[str, Any], rows: int, optimiser: Any) -> None:
    """One step: loss and gradient of each micro-batch, clipping, AdamW."""
    model = trainer.model.train()
    items = inputs["completion_mask"].sum()
    for start in range(0, len(inputs["advantages"]), rows):
        part = {name: value[start : start + rows] for name, value in inputs.items()}
        trainer._compute_loss(model, {**part, "num_items_in_batch": items}).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimiser.step()
    optimiser.zero_grad()


def make_trainer(folder: Path, rows: int, total: int, limit: int) -> GRPOTrainer:
    """A trainer in float32 on the CPU, with token mean over the whole batch."""
    config = GRPOConfig(
        output_dir=str(folder / "trl"),
        use_cpu=True,
        bf16=False,
        report_to=[],
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=total // rows,
        steps_per_generation=total // rows,
        num_generations=8,
        max_completion_length=limit,
        loss_type="dapo",
        beta=0.0,
        disable_dropout=True,
        gradient_checkpointing=False,
    )
    words = Tokenizer(WordLevel({"a": 0, "<eos>": 1}, unk_token="a"))
    tokenizer: Any = PreTrainedTokenizerFast
    return GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(folder / "policy", dtype=torch.float32),
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["a"] * total}),
        processing_class=tokenizer(tokenizer_object=words, eos_token="<eos>", pad_token="<eos>"),
    )


def peak() -> float:
    """The most memory that this process ever had, MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
