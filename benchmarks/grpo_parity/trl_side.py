"""Loss and gradient by TRL's GRPOTrainer or RLOOTrainer; run by the interpreter of TRL's own environment.

Knows nothing of ebbtide. Reads `rollouts.npz` and `cases.json` from the folder given, writes
one `trl-<case>.npz` per case (loss, and gradients by name).
"""
# ruff: noqa: SLF001, S106 - the trainer's loss is not public; a token is no password

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer


def main(folder: Path) -> None:
    """Compute every case."""
    data = np.load(folder / "rollouts.npz")
    for case in json.loads((folder / "cases.json").read_text()):
        result = compute(folder, data, case)
        np.savez(folder / f"trl-{case['name']}.npz", **result)  # type: ignore[arg-type] # allow_pickle


def compute(folder: Path, data: Any, case: dict[str, Any]) -> dict[str, np.ndarray]:
    """One case: the loss as `_compute_loss` gives it, and its gradient."""
    trainer = make_trainer(folder, case, rows=len(data["advantages"]))
    inputs = {name: torch.from_numpy(data[name]) for name in data.files}
    sampling = inputs.pop("sampling_per_token_logps")
    if case["weight_max"] is not None:
        # As `_generate_and_score_completions` makes it for token_truncate, and the loss asks for it.
        ratio = torch.exp(inputs["old_per_token_logps"] - sampling)
        inputs["importance_sampling_ratio"] = ratio.clamp(max=case["weight_max"])
        trainer.use_vllm = trainer.vllm_importance_sampling_correction = True
    if not case["holes"]:
        del inputs["tool_mask"]
    mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
    inputs["num_items_in_batch"] = mask.sum()
    inputs["old_logps"] = (inputs["old_per_token_logps"] * mask).sum(1)
    if case["theirs"].get("beta"):
        inputs["ref_per_token_logps"] = reference(trainer, folder, inputs)
    model = trainer.model.train()
    loss = trainer._compute_loss(model, inputs)
    loss.backward()
    gradients = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
    return {"loss": loss.detach().numpy(), **gradients}


def reference(trainer: Any, folder: Path, inputs: dict[str, Any]) -> torch.Tensor:
    """TRL's own scoring, with the reference's weights put into the patched model for a moment."""
    model = trainer.model
    kept = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    other = AutoModelForCausalLM.from_pretrained(folder / "reference", dtype=torch.float32)
    model.load_state_dict(other.state_dict())
    ids = torch.cat([inputs["prompt_ids"], inputs["completion_ids"]], dim=1)
    mask = torch.cat([inputs["prompt_mask"], inputs["completion_mask"]], dim=1)
    with torch.no_grad():
        logps, _, _ = trainer._get_per_token_logps_and_entropies(
            model, ids, mask, inputs["completion_ids"].size(1)
        )
    model.load_state_dict(kept)
    scored: torch.Tensor = logps
    return scored


def make_trainer(folder: Path, case: dict[str, Any], rows: int) -> GRPOTrainer | RLOOTrainer:
    """A trainer with every option that matters stated."""
    options: dict[str, Any] = {
        "output_dir": str(folder / "trl"),
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "per_device_train_batch_size": rows,
        "gradient_accumulation_steps": 1,
        "steps_per_generation": 1,
        "num_generations": case["group_size"],
        "max_completion_length": case["limit"],
        "temperature": case["temperature"],
        "num_iterations": 1,
        "mask_truncated_completions": False,
        "disable_dropout": True,
        "gradient_checkpointing": False,
    }
    if case["trainer"] == "rloo":
        config, kind = RLOOConfig(**options, **case["theirs"]), RLOOTrainer
    else:
        level = {"importance_sampling_level": "token", **case["theirs"]}
        config, kind = GRPOConfig(**options, **level, scale_rewards="none"), GRPOTrainer
    policy = AutoModelForCausalLM.from_pretrained(folder / "policy", dtype=torch.float32)
    trainer = kind(
        model=policy,
        reward_funcs=lambda completions, **_: [0.0] * len(completions),
        args=config,
        train_dataset=Dataset.from_dict({"prompt": ["a"] * rows}),
        processing_class=tokenizer(),
    )
    trainer.current_gradient_accumulation_steps = 1
    return trainer


def tokenizer() -> PreTrainedTokenizerFast:
    """Any tokenizer: the trainer asks for one, tokens are given."""
    words = Tokenizer(WordLevel({"a": 0, "<eos>": 1}, unk_token="a"))
    made: Any = PreTrainedTokenizerFast  # its constructor has no types
    found: PreTrainedTokenizerFast = made(
        tokenizer_object=words, eos_token="<eos>", pad_token="<eos>"
    )
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1]))
