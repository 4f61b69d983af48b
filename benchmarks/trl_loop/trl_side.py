"""TRL's GRPOTrainer on the shared workload; run by the interpreter of TRL's own environment.

Knows nothing of ebbtide. Prints one JSON line: seconds of each measured step, answer lengths,
mean reward. `torchrun --nproc-per-node 2` starts it as two data-parallel processes.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast, TrainerCallback
from trl import GRPOConfig, GRPOTrainer

ANSWER = re.compile(r"<answer>(.*)</answer>", re.DOTALL)


class Stopwatch(TrainerCallback):
    """When each optimiser step ended, in seconds."""

    def __init__(self) -> None:
        self.ends: list[float] = []

    def on_step_end(self, *_: Any, **__: Any) -> None:
        self.ends.append(time.perf_counter())


class ExactMatch:
    """1 where the text between the answer tags is the reference; keeps what it saw."""

    __name__ = "exact"

    def __init__(self) -> None:
        self.lengths: list[int] = []
        self.rewards: list[float] = []

    def __call__(
        self, completions: list[str], completion_ids: list[list[int]], answer: list[str], **_: Any
    ) -> list[float]:
        found = [ANSWER.search(text) for text in completions]
        rewards = [
            float(m is not None and m.group(1) == a) for m, a in zip(found, answer, strict=True)
        ]
        self.lengths += [len(ids) for ids in completion_ids]
        self.rewards += rewards
        return rewards


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--warmup", type=int, required=True)
    parser.add_argument("--prompts-per-step", type=int, default=32)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--micro-batches", type=int, default=1)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--learning-rate", type=float, default=2e-4)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--processes", type=int, default=1)
    return parser.parse_args()


def configuration(args: argparse.Namespace) -> GRPOConfig:
    """Every option that shapes the work is said, none is left to a default."""
    samples = args.prompts_per_step * args.group // args.processes
    return GRPOConfig(
        output_dir="/tmp/trl-loop",  # noqa: S108 (nothing is saved)
        use_cpu=True,
        bf16=False,
        max_steps=args.steps,
        per_device_train_batch_size=samples // args.micro_batches,
        gradient_accumulation_steps=args.micro_batches,
        steps_per_generation=args.micro_batches,
        num_generations=args.group,
        max_completion_length=args.max_tokens,
        temperature=1.0,
        top_p=1.0,
        top_k=0,
        loss_type="dapo",  # the mean over all tokens of the batch: ebbtide's token-mean
        beta=0.0,
        num_iterations=1,
        epsilon=0.2,
        epsilon_high=0.2,
        scale_rewards="none",
        mask_truncated_completions=False,
        learning_rate=args.learning_rate,
        lr_scheduler_type="constant",
        optim="adamw_torch",
        adam_beta1=0.9,
        adam_beta2=0.99,
        weight_decay=0.0,
        max_grad_norm=1.0,
        disable_dropout=True,
        shuffle_dataset=False,
        dataloader_num_workers=0,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )


def tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    # AutoTokenizer would replace the splitting rule by that of the architecture's usual one.
    found: PreTrainedTokenizerFast = PreTrainedTokenizerFast.from_pretrained(
        folder, padding_side="left"
    )
    return found


def main() -> None:
    args = arguments()
    torch.set_num_threads(args.threads)
    torch.set_flush_denormal(True)
    lines = [json.loads(line) for line in args.prompts.read_text().splitlines()]
    rows = [{"prompt": line["prompt"], "answer": line["answer"]} for line in lines]
    reward, watch = ExactMatch(), Stopwatch()
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(args.model, dtype=torch.float32),
        processing_class=tokenizer(args.model),
        reward_funcs=reward,
        args=configuration(args),
        train_dataset=Dataset.from_list(rows),
        callbacks=[watch],
    )
    trainer.train()
    if trainer.accelerator.is_main_process:
        report(args, watch, reward)


def report(args: argparse.Namespace, watch: Stopwatch, reward: ExactMatch) -> None:
    ends = watch.ends[args.warmup - 1 :]
    result = {
        "seconds": [b - a for a, b in pairwise(ends)],
        "samples_per_step": args.prompts_per_step * args.group,
        "lengths": reward.lengths,
        "reward": sum(reward.rewards) / len(reward.rewards),
        "cpu_seconds": time.process_time(),
    }
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
