"""The model: built from a publication's config.json, loaded in place, called with rows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.initialization import no_init_weights

from ebbtide.engines.publication import tied_names
from ebbtide.engines.torch import attention
from ebbtide.engines.torch.kv import Aim, Geometry, KvRows
from ebbtide.engines.torch.sampling import Drawn, Noise, draw
from ebbtide.engines.torch.traced import Asked, TracedStep, additive, traced_step
from ebbtide.errors import Corrupt, Refused

FULL = "full_attention"
SLIDING = "sliding_attention"
Ints = NDArray[np.int64]


def build_model(folder: Path, *, device: str, dtype: torch.dtype) -> Any:
    """An uninitialised causal LM of the architecture in `folder`; raises Refused.

    Refused are models whose state is not keys and values (recurrent layers).
    """
    try:
        config = AutoConfig.from_pretrained(folder)
    except (OSError, ValueError) as error:
        raise Refused(f"no model architecture in {folder}: {error}", field="/model") from error
    strange = set(getattr(config, "layer_types", None) or ()) - {FULL, SLIDING}
    if strange:
        raise Refused(f"layers of type {sorted(strange)} are not supported", field="/model")
    with no_init_weights(), torch.device(device):
        model = _instance(config, dtype)
        model.tie_weights()  # which belongs to the initialisation that was left out
    return model.eval().requires_grad_(requires_grad=False)


def _instance(config: Any, dtype: torch.dtype) -> Any:
    """Prefer our grouped attention; a model without SDPA gets its own eager one."""
    attention.register()
    build: Any = AutoModelForCausalLM.from_config
    try:
        model = build(config, dtype=dtype, attn_implementation="sdpa")
    except ValueError:
        return build(config, dtype=dtype, attn_implementation="eager")
    model.set_attn_implementation(attention.NAME)
    return model


def load_weights(model: Any, tensors: Mapping[str, Tensor], aliases: Mapping[str, str]) -> None:
    """Copy a publication into the model's own storage; raises Corrupt unless names fit exactly.

    An alias takes the tensor that it names, whether or not this model ties the two.
    """
    own = model.state_dict()
    unknown = sorted(set(tensors) - set(own))
    missing = sorted(name for name in own if aliases.get(name, name) not in tensors)
    if unknown or missing:
        raise Corrupt(f"publication does not fit its config: lacks {missing}, has {unknown}")
    sources = {name: tensors[aliases.get(name, name)] for name in own}
    for name, stored in tied_names(model).items():
        if not torch.equal(sources[name], sources[stored]):
            raise Corrupt(f"the config ties {name} to {stored}, the publication has two tensors")
    for name, target in own.items():
        source = sources[name]
        if target.shape != source.shape:
            raise Corrupt(f"{name} has shape {tuple(source.shape)}, not {tuple(target.shape)}")
        target.copy_(source)


class Runner:
    """Calls one loaded model. Arrays in, device tensors out."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.vocab: int = model.get_output_embeddings().weight.shape[0]
        self.device: torch.device = model.device
        config = model.config.get_text_config()
        kinds = getattr(config, "layer_types", None)
        window = getattr(config, "sliding_window", None)
        self._sliding: int | None = window if kinds is None or SLIDING in kinds else None
        self._mixed = kinds is not None and FULL in kinds and SLIDING in kinds
        self._step: TracedStep | None = None

    @property
    def traced(self) -> bool:
        """Whether decode steps are replayed from a recording."""
        return self._step is not None

    def trace(self) -> None:
        """Record a decode step, once the model has weights; does nothing where that is not safe."""
        self._step = traced_step(self.model, self._one_row()) if self._sliding is None else None

    def step(self, kv: KvRows, tokens: Ints, positions: Ints, window: int, noise: Noise) -> Drawn:
        """Compute `tokens` (n,) at `positions` (n,) of the first n rows, and draw what follows."""
        rows = np.arange(len(tokens))
        if self._step and kv.stored:
            keys = torch.arange(window, device=self.device)
            ids, at = self.tensor(tokens[:, None]), self.tensor(positions[:, None])
            return self._step(kv, Asked(ids, at, self.tensor(rows), keys, noise))
        logits = self.forward(kv, rows, tokens[:, None], positions[:, None], window=window)
        return draw(logits[:, -1], noise, greedy=not bool(noise.temperature.any()))

    def forward(
        self, kv: KvRows, rows: Ints, tokens: Ints, positions: Ints, *, window: int, keep: int = 1
    ) -> Tensor:
        """Logits (n, keep, vocab) after the last `keep` of `tokens` (n, t); 0 keeps all.

        Writes the keys and values of `tokens`, which stand at `positions` (n, t), into `rows`.
        """
        leading = bool(rows[0] == 0 and rows[-1] == len(rows) - 1)
        at = self.tensor(positions)
        kv.aim = Aim(self.tensor(rows), at, window, leading)
        out = self.model(
            input_ids=self.tensor(tokens),
            attention_mask=self._masks(at, window),
            position_ids=at,
            past_key_values=kv,
            use_cache=True,
            logits_to_keep=keep,
        )
        logits: Tensor = out.logits
        return logits

    def score(self, tokens: Ints) -> Tensor:
        """Log-probability of each token after the first, by teacher forcing: shape (t - 1,).

        Goes through KV rows and masks as decoding does, so that it also finds a model that
        this engine does not serve rightly.
        """
        ids, positions = tokens[None, :], np.arange(len(tokens))[None, :]
        rows, kv = np.zeros(1, dtype=np.int64), KvRows(1, len(tokens))
        logits = self.forward(kv, rows, ids, positions, window=len(tokens), keep=0)
        logprobs = torch.log_softmax(logits[0, :-1].float(), dim=-1)
        return logprobs.gather(1, self.tensor(ids)[0, 1:, None])[:, 0]

    def geometry(self) -> Geometry | None:
        """What this model's keys are, found by computing one; None if its layers differ."""
        return self._one_row().geometry

    def _one_row(self) -> KvRows:
        """Keys and values of a single position."""
        nought, kv = np.zeros((1, 1), dtype=np.int64), KvRows(1, 1)
        self.forward(kv, nought[0], nought, nought, window=1)
        return kv

    def wait(self) -> None:
        """Until the device has done what it was given."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def tensor(self, array: NDArray[Any]) -> Tensor:
        """`array` on the model's device; shares memory where that is the CPU."""
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    def _masks(self, positions: Tensor, window: int) -> Tensor | dict[str, Tensor]:
        """Additive masks (n, 1, t, window): each query sees keys up to its own position."""
        keys = torch.arange(window, device=self.device)
        queries = positions[:, None, :, None]
        full = additive(keys <= queries, self.model.dtype)
        if self._sliding is None or self._sliding >= window:
            return {FULL: full, SLIDING: full} if self._mixed else full
        near = (keys <= queries) & (keys > queries - self._sliding)
        sliding = additive(near, self.model.dtype)
        return {FULL: full, SLIDING: sliding} if self._mixed else sliding
