"""Held-out reward of an exported model by plain transformers code: nothing of ebbtide decides.

`python -m benchmarks.plain_eval MODEL_FOLDER HELD_OUT_JSONL` prints the mean reward when sampling
at temperature 1, one answer per prompt.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import reasoning_gym
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

ANSWER = re.compile(r"<answer>(.*?)</answer>", re.DOTALL)
BATCH = 32
MAX_NEW_TOKENS = 128


@torch.inference_mode()
def answers(model: Any, tokenizer: Any, prompts: list[str]) -> Iterable[str]:
    """One sampled answer per prompt, in order."""
    tokenizer.padding_side = "left"
    for start in range(0, len(prompts), BATCH):
        batch = tokenizer(prompts[start : start + BATCH], return_tensors="pt", padding=True)
        out = model.generate(
            input_ids=batch["input_ids"],
            attention_mask=batch["attention_mask"],
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=MAX_NEW_TOKENS,
            pad_token_id=tokenizer.pad_token_id,
        )
        width = batch["input_ids"].shape[1]
        yield from tokenizer.batch_decode(out[:, width:], skip_special_tokens=True)


def reward(text: str, entry: dict[str, Any], score: Any) -> float:
    """1 if reasoning-gym's scorer gives the whole point to what stands between the tags."""
    found = ANSWER.search(text)
    return float(found is not None and score(found.group(1), entry) >= 1.0)


def main(model_folder: Path, held_out: Path, seed: int = 0) -> float:
    """The mean reward over all prompts of `held_out`."""
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(model_folder, dtype=torch.float32).train(False)
    # tokenizer.json as it is: AutoTokenizer would rebuild it as the one of real Qwen2 models.
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model_folder)
    rows = [json.loads(line) for line in held_out.read_text().splitlines()]
    score = reasoning_gym.get_score_answer_fn("word_sequence_reversal")
    texts = answers(model, tokenizer, [row["prompt"] for row in rows])
    points = [reward(text, row, score) for text, row in zip(texts, rows, strict=True)]
    return sum(points) / len(points)


if __name__ == "__main__":
    print(main(Path(sys.argv[1]), Path(sys.argv[2])))
