"""A model, a tokenizer and prompts small enough for any test, written without torch."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

LETTERS = "abcdefghijklmnopqrstuvwxyz "
HIDDEN, INNER, LAYERS, HEADS, GROUPS = 32, 64, 2, 4, 2


def write_model(folder: Path, *, seed: int = 0, more: int = 0, layers: int = LAYERS) -> Path:
    """A Qwen2 of about 20,000 random parameters with one token per letter.

    With `more` tokens each is rarer, the one that ends an answer too: answers are longer. With
    more `layers` each token takes longer, on any machine.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokens = ["<pad>", "<eos>", "<unk>", *LETTERS, *map(chr, range(0x4E00, 0x4E00 + more))]
    vocabulary = {token: i for i, token in enumerate(tokens)}
    _write_tokenizer(folder, vocabulary)
    (folder / "config.json").write_text(json.dumps(_config(len(vocabulary), layers)))
    save_file(_weights(len(vocabulary), layers, seed), folder / "model.safetensors")
    return folder


def write_prompts(path: Path, *, rows: int = 64, longest: int = 12, seed: int = 0) -> Path:
    """JSONL rows of random letters with an answer."""
    rng = random.Random(seed)  # noqa: S311 - a test must repeat
    lines = [
        {"prompt": "".join(rng.choices(LETTERS[:-1], k=rng.randint(3, longest))), "answer": "a"}
        for _ in range(rows)
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def _write_tokenizer(folder: Path, vocabulary: dict[str, int]) -> None:
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex("."), "isolated")
    tokenizer.decoder = decoders.Fuse()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    ).save_pretrained(folder)


def _config(vocabulary: int, layers: int) -> dict[str, object]:
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": vocabulary,
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": GROUPS,
        "max_position_embeddings": 512,
        "tie_word_embeddings": True,
        "eos_token_id": 1,
        "pad_token_id": 0,
        "dtype": "float32",
    }


def _weights(vocabulary: int, layers: int, seed: int) -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    narrow = HIDDEN * GROUPS // HEADS

    def drawn(*shape: int) -> NDArray[np.float32]:
        return rng.normal(0, 0.05, shape).astype(np.float32)

    ones, zeros = np.ones(HIDDEN, np.float32), np.zeros
    found = {"model.embed_tokens.weight": drawn(vocabulary, HIDDEN), "model.norm.weight": ones}
    for layer in range(layers):
        parts = {
            "input_layernorm.weight": ones,
            "post_attention_layernorm.weight": ones,
            "self_attn.q_proj.weight": drawn(HIDDEN, HIDDEN),
            "self_attn.q_proj.bias": zeros(HIDDEN, np.float32),
            "self_attn.k_proj.weight": drawn(narrow, HIDDEN),
            "self_attn.k_proj.bias": zeros(narrow, np.float32),
            "self_attn.v_proj.weight": drawn(narrow, HIDDEN),
            "self_attn.v_proj.bias": zeros(narrow, np.float32),
            "self_attn.o_proj.weight": drawn(HIDDEN, HIDDEN),
            "mlp.gate_proj.weight": drawn(INNER, HIDDEN),
            "mlp.up_proj.weight": drawn(INNER, HIDDEN),
            "mlp.down_proj.weight": drawn(HIDDEN, INNER),
        }
        found |= {f"model.layers.{layer}.{name}": value.copy() for name, value in parts.items()}
    return found
