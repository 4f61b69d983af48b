"""A tokenizer of single characters, with one token for each fixed phrase of the task.

About 80 entries, so a model of 0.3 million parameters has most of them for thinking. Written
as tokenizer.json and tokenizer_config.json: any transformers program reads it.
"""

from __future__ import annotations

import json
import string
from pathlib import Path

from tokenizers import AddedToken, Tokenizer, decoders, models

PAD, EOS, UNK = "<pad>", "<eos>", "<unk>"
SPECIAL = (PAD, EOS, UNK)
INTRODUCTION = (
    "Solve the following problem.\n\nProvide you answer as a comma-separated list of words"
    " with a space after the comma.\n\nReverse this list of words: "
)
"""How reasoning-gym's word_sequence_reversal opens each question (its wording, typo included)."""
PHRASES = (INTRODUCTION, ", ", "<answer>", "</answer>")
CHARACTERS = string.ascii_letters + string.digits + "\n ,.:;'-_<>/"


def build() -> Tokenizer:
    """The tokenizer; ids are special tokens first, then phrases, then characters."""
    names = (*SPECIAL, *PHRASES, *CHARACTERS)
    vocabulary = {name: number for number, name in enumerate(names)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token=UNK))
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens(list(SPECIAL))
    tokenizer.add_tokens([AddedToken(phrase, normalized=False) for phrase in PHRASES])
    return tokenizer


def save(folder: Path) -> None:
    """Write the tokenizer's files into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    build().save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": PAD,
        "eos_token": EOS,
        "unk_token": UNK,
        "clean_up_tokenization_spaces": False,
        "model_max_length": 1024,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n")
