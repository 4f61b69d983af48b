"""Loss and gradient by TRL's DPOTrainer; run by the interpreter of TRL's own environment.

Knows nothing of ebbtide. Reads `pairs.json` from the folder given, writes one `trl-<beta>.npz` per
beta (loss, and gradients by name).
"""
# ruff: noqa: SLF001, S106 - the trainer's loss is not public; a token is no password

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from datasets import Dataset
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
from trl import DPOConfig, DPOTrainer
from trl.trainer.dpo_trainer import DataCollatorForPreference


def main(folder: Path) -> None:
    """Compute every beta."""
    work = json.loads((folder / "pairs.json").read_text())
    inputs = DataCollatorForPreference(pad_token_id=1)(work["pairs"])
    for beta in work["betas"]:
        trainer = make_trainer(folder, beta, rows=len(work["pairs"]))
        model = trainer.model.train()
        loss = trainer._compute_loss(model, inputs, return_outputs=False)
        loss.backward()
        found = {n: p.grad.numpy() for n, p in model.named_parameters() if p.grad is not None}
        result: dict[str, Any] = {"loss": loss.detach().numpy(), **found}
        np.savez(folder / f"trl-{beta}.npz", **result)


def make_trainer(folder: Path, beta: float, rows: int) -> Any:
    """A trainer with every option that matters stated."""
    config = DPOConfig(
        output_dir=str(folder / "trl"),
        use_cpu=True,
        bf16=False,
        report_to=[],
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=1,
        beta=beta,
        loss_type="sigmoid",
        precompute_ref_log_probs=False,
        disable_dropout=True,
        gradient_checkpointing=False,
    )
    policy, reference = (
        AutoModelForCausalLM.from_pretrained(folder / name, dtype="float32")
        for name in ("policy", "reference")
    )
    made: Any = PreTrainedTokenizerFast  # its constructor has no types
    words = Tokenizer(WordLevel({"a": 0, "<eos>": 1}, unk_token="a"))
    text = ["a"] * rows
    return DPOTrainer(
        model=policy,
        ref_model=reference,
        args=config,
        train_dataset=Dataset.from_dict({"prompt": text, "chosen": text, "rejected": text}),
        processing_class=made(tokenizer_object=words, eos_token="<eos>", pad_token="<eos>"),
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
