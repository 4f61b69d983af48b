"""Low-rank adaptation (Hu et al., arXiv 2106.09685): y = W x + (alpha / rank) B A x, W frozen.

A and B become parameters of the layer that they adapt, so that the names of the model's own
weights, sharding and checkpoints stay as they are. A begins as PEFT's does, B at 0: at first the
adapted model is the model itself. Published under PEFT's names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import torch
from torch.nn.functional import linear

from ebbtide.errors import Refused
from ebbtide.spec import LoraSpec

_PARTS = ("lora_A", "lora_B")
_PEFT = "base_model.model."


class Adapters:
    """Those of one model. `scale`: alpha / rank."""

    def __init__(self, spec: LoraSpec, targets: Sequence[str]) -> None:
        self.spec = spec
        self.targets = tuple(targets)
        self.scale = spec.alpha / spec.rank
        self._on = True

    @contextmanager
    def off(self) -> Iterator[None]:
        """Within, the model is the one that it was before it learned."""
        self._on = False
        try:
            yield
        finally:
            self._on = True

    def forward(self, layer: Any, inputs: torch.Tensor) -> torch.Tensor:
        """What an adapted linear layer makes of `inputs` (..., in)."""
        plain = linear(inputs, layer.weight, layer.bias)
        if not self._on:
            return plain
        return plain + linear(linear(inputs, layer.lora_A), layer.lora_B) * self.scale

    def config(self, base: str) -> dict[str, object]:
        """PEFT's adapter_config.json. `base`: where the adapted model lies."""
        return {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": base,
            "r": self.spec.rank,
            "lora_alpha": self.spec.alpha,
            "lora_dropout": 0.0,
            "bias": "none",
            "inference_mode": True,
            "target_modules": sorted({name.rpartition(".")[2] for name in self.targets}),
        }


def adapt(model: torch.nn.Module, spec: LoraSpec, layers: Sequence[torch.nn.Module]) -> Adapters:
    """Freeze `model` and adapt the linear layers in its repeated `layers` that `spec` names.

    Draws from torch's generator, which must stand alike on all ranks. Raises Refused.
    """
    model.requires_grad_(requires_grad=False)
    inside = {id(part) for layer in layers for part in layer.modules()}
    found = [
        (name, part)
        for name, part in model.named_modules()
        if isinstance(part, torch.nn.Linear) and id(part) in inside and _wanted(name, spec)
    ]
    missing = set(spec.targets) - {name.rpartition(".")[2] for name, _ in found}
    if missing or not found:
        detail = f"no linear layer is called {sorted(missing)}" if missing else "no linear layer"
        raise Refused(f"{detail} in the model's repeated layers", field="/training/lora/targets")
    adapters = Adapters(spec, [name for name, _ in found])
    for _, part in found:
        _add(part, spec.rank, adapters)
    return adapters


def adapted(full: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The adapters among the parameters `full`, under PEFT's names."""
    return {
        f"{_PEFT}{name}.weight": tensor
        for name, tensor in full.items()
        if name.rpartition(".")[2] in _PARTS
    }


def plain(full: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The model's own parameters among `full`."""
    return {n: tensor for n, tensor in full.items() if n.rpartition(".")[2] not in _PARTS}


def _wanted(name: str, spec: LoraSpec) -> bool:
    return not spec.targets or name.rpartition(".")[2] in spec.targets


def _add(layer: torch.nn.Linear, rank: int, adapters: Adapters) -> None:
    first = torch.empty(rank, layer.in_features)
    torch.nn.init.kaiming_uniform_(first, a=math.sqrt(5))
    layer.register_parameter("lora_A", torch.nn.Parameter(first))
    second = torch.zeros(layer.out_features, rank)
    layer.register_parameter("lora_B", torch.nn.Parameter(second))
    cast("Any", layer).forward = partial(adapters.forward, layer)
