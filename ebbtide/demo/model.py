"""A tiny Qwen2 with random weights, in Hugging Face's format and without importing torch.

Two layers of width 128, 0.3 million parameters with tied embeddings.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from ebbtide.demo import tokenizer

_SPREAD = 0.02


def config(vocabulary: int) -> dict[str, Any]:
    """config.json of the model."""
    return {
        "architectures": ["Qwen2ForCausalLM"],
        "model_type": "qwen2",
        "vocab_size": vocabulary,
        "hidden_size": 128,
        "intermediate_size": 256,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "tie_word_embeddings": True,
        "attention_dropout": 0.0,
        "initializer_range": _SPREAD,
        "use_cache": True,
        "use_sliding_window": False,
        "torch_dtype": "float32",
        "bos_token_id": None,
        "eos_token_id": 1,
        "pad_token_id": 0,
    }


def save(folder: Path, *, seed: int) -> None:
    """Write config, tokenizer and weights drawn from `seed` into `folder`."""
    tokenizer.save(folder)
    shape = config(tokenizer.build().get_vocab_size())
    (folder / "config.json").write_text(json.dumps(shape, indent=2) + "\n")
    stop = {"eos_token_id": shape["eos_token_id"], "pad_token_id": shape["pad_token_id"]}
    (folder / "generation_config.json").write_text(json.dumps(stop, indent=2) + "\n")
    save_file(dict(_weights(shape, seed)), folder / "model.safetensors", {"format": "pt"})


def _weights(shape: dict[str, Any], seed: int) -> Iterator[tuple[str, NDArray[np.float32]]]:
    rng = np.random.default_rng(seed)
    width, inner = shape["hidden_size"], shape["intermediate_size"]
    keys = width * shape["num_key_value_heads"] // shape["num_attention_heads"]

    def draw(*size: int) -> NDArray[np.float32]:
        return rng.normal(0.0, _SPREAD, size).astype(np.float32)

    yield "model.embed_tokens.weight", draw(shape["vocab_size"], width)
    yield "model.norm.weight", np.ones(width, np.float32)
    for layer in range(shape["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        for norm in ("input_layernorm", "post_attention_layernorm"):
            yield f"{name}.{norm}.weight", np.ones(width, np.float32)
        for part, rows in (("q", width), ("k", keys), ("v", keys)):
            yield f"{name}.self_attn.{part}_proj.weight", draw(rows, width)
            yield f"{name}.self_attn.{part}_proj.bias", np.zeros(rows, np.float32)
        yield f"{name}.self_attn.o_proj.weight", draw(width, width)
        for part in ("gate", "up"):
            yield f"{name}.mlp.{part}_proj.weight", draw(inner, width)
        yield f"{name}.mlp.down_proj.weight", draw(width, inner)
