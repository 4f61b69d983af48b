"""A causal language model, sharded over the gang (FSDP2), that scores chosen tokens.

The forward pass runs whole sequences without an attention mask: padding is on the right and
attention is causal, so no real position sees it. Only the selected positions reach the
output layer, the most expensive one for large vocabularies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import SafetensorError
from torch.distributed.fsdp import (
    CPUOffloadPolicy,
    FSDPModule,
    MixedPrecisionPolicy,
    OffloadPolicy,
    fully_shard,
)
from torch.utils.checkpoint import checkpoint
from transformers import AutoModelForCausalLM

from ebbtide.engines.publication import tied_names
from ebbtide.errors import Refused
from ebbtide.spec import LoraSpec
from services.learner.engine.gang import Gang
from services.learner.engine.lora import Adapters, adapt

WHOLE_BELOW = 16_000_000
"""Parameters up to which the model is one unit: gathered once per update, not per layer."""


@dataclass(frozen=True)
class Scored:
    """Over N selected positions, float32.

    `logprobs`: of the targets, after temperature; `entropy`: nats, with gradient if asked for.
    """

    logprobs: torch.Tensor
    entropy: torch.Tensor


@dataclass(frozen=True)
class Shared:
    """How rows of several samples are read (`services.learner.core.sharing`).

    `mask` (rows, 1, width, width): what each position may attend to. `positions` (rows, width).
    """

    mask: torch.Tensor
    positions: torch.Tensor


def tree_mask(branch: torch.Tensor, trunk: torch.Tensor) -> torch.Tensor:
    """Each position sees its trunk and its own branch, up to itself; both (rows, width).

    Padding sees itself, because a softmax over nothing is not a number.
    """
    width = branch.shape[1]
    own = branch[:, :, None] == branch[:, None, :]
    seen = own | (branch[:, None, :] == trunk[:, :, None])
    causal = torch.ones(width, width, dtype=torch.bool, device=branch.device).tril()
    return (seen & causal)[:, None]


class Policy:
    """`module` is the transformers model, already sharded; `aliases` its tied names.

    `adapters`: of LoRA, if these learn and the model does not.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        *,
        aliases: dict[str, str],
        small: bool,
        adapters: Adapters | None = None,
    ) -> None:
        self.module = module
        self.aliases = aliases
        self.adapters = adapters
        self._small = small
        self._where: torch.Tensor | None = None
        head = cast("Any", module).get_output_embeddings()
        head.register_forward_pre_hook(self._select)

    def score(
        self,
        tokens: torch.Tensor,
        where: torch.Tensor,
        targets: torch.Tensor,
        *,
        temperature: float,
        shared: Shared | None = None,
        explore: bool = False,
    ) -> Scored:
        """Score `targets` at the flattened positions `where` of `tokens` (rows, width).

        `explore`: the entropy carries gradient, which costs a second softmax in memory.
        """
        self._where = where
        read: dict[str, Any] = {}
        if shared is not None:
            read = {"attention_mask": shared.mask, "position_ids": shared.positions}
        out = self.module(input_ids=tokens, use_cache=False, **read)
        logits = out.logits[0].float() / temperature
        normaliser = torch.logsumexp(logits, dim=-1)
        chosen = logits.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        if explore:
            spread = normaliser - (torch.softmax(logits, dim=-1) * logits).sum(dim=-1)
        else:
            spread = _entropy(logits.detach(), normaliser.detach())
        return Scored(chosen - normaliser, spread)

    @contextmanager
    def accumulating(self, *, last: bool) -> Iterator[None]:
        """Around one micro-batch: a small model meets the other ranks only in the `last`."""
        meet_in_last(self.module, last=last, small=self._small)
        yield

    def _select(self, _head: torch.nn.Module, args: tuple[Any, ...]) -> tuple[torch.Tensor]:
        hidden = args[0]
        assert self._where is not None
        return (hidden.reshape(-1, hidden.shape[-1]).index_select(0, self._where).unsqueeze(0),)


class Unadapted(Policy):
    """The policy as it was before its adapters learned: a reference without weights of its own."""

    def __init__(self, policy: Policy, adapters: Adapters) -> None:  # its hook is the policy's
        self._policy, self._adapters = policy, adapters

    def score(
        self,
        tokens: torch.Tensor,
        where: torch.Tensor,
        targets: torch.Tensor,
        *,
        temperature: float,
        shared: Shared | None = None,
        explore: bool = False,
    ) -> Scored:
        """As `Policy.score`."""
        with self._adapters.off():
            return self._policy.score(
                tokens, where, targets, temperature=temperature, shared=shared, explore=explore
            )


def meet_in_last(module: torch.nn.Module, *, last: bool, small: bool) -> None:
    """Before a micro-batch: only in the `last` does a small model meet the other ranks."""
    sharded = cast("FSDPModule", module)
    if small:
        sharded.set_requires_gradient_sync(last)
        sharded.set_reshard_after_backward(last)
    sharded.set_is_last_backward(last)


def load_policy(
    folder: Path,
    gang: Gang,
    *,
    mixed_precision: bool,
    frozen: bool = False,
    checkpointing: bool = False,
    offload: bool = False,
    backend: str = "",
    whole_below: int = WHOLE_BELOW,
    lora: LoraSpec | None = None,
) -> Policy:
    """Read a Hugging Face folder in float32 and shard it; dropout is off, always.

    Sampling had no dropout, so a ratio of probabilities with dropout would not be one. A model
    of fewer than `whole_below` parameters is sharded as one unit. `checkpointing`: layers keep
    their input alone and are computed again in the backward pass. `offload`: parameters rest in
    host memory. `backend`: of torch.compile, by which layers are compiled; empty: they are not. With
    `lora` adapters learn.
    """
    model = _read(folder)
    model.eval().requires_grad_(not frozen)
    layers = layers_of(model)
    adapters = adapt(model, lora, layers) if lora else None
    prepare(layers, checkpointing=checkpointing, backend=backend)
    aliases = tied_names(model)
    small = is_small(model, whole_below)
    shard(model, gang, layers=layers, small=small, mixed=mixed_precision, offload=offload)
    return Policy(model, aliases=aliases, small=small, adapters=adapters)


def _read(folder: Path) -> Any:
    if not (folder / "config.json").is_file():
        raise Refused(f"no config.json in {folder}: not a model folder", field="/model/uri")
    try:
        return AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="sdpa", local_files_only=True
        )
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        raise Refused(f"{folder} cannot be loaded: {error}", field="/model/uri") from error


def is_small(model: torch.nn.Module, whole_below: int = WHOLE_BELOW) -> bool:
    """Whether the model is sharded as one unit."""
    return sum(p.numel() for p in model.parameters()) < whole_below


def shard(
    model: torch.nn.Module,
    gang: Gang,
    *,
    layers: Sequence[torch.nn.Module],
    small: bool,
    mixed: bool,
    offload: bool = False,
) -> None:
    """Shard `model` over the gang, each of `layers` by itself unless the model is `small`.

    With `offload` shards stay in host memory, and the whole model is never on the device.
    """
    rest = OffloadPolicy()
    if offload:
        rest = CPUOffloadPolicy(pin_memory=gang.device.type == "cuda")
    else:
        model.to(gang.device)
    precision = MixedPrecisionPolicy()
    if mixed and _has_bfloat16(gang.device):
        precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for unit in [*([] if small else layers), model]:
        sharded = fully_shard(
            unit,
            mesh=gang.mesh,
            mp_policy=precision,
            reshard_after_forward=not small,
            offload_policy=rest,
        )
        # Losses are normalised by global denominators, so gradients are summed; gloo can only
        # sum, and a plain sum is also what makes one rank and many agree.
        sharded.set_gradient_divide_factor(1.0)
        sharded.set_force_sum_reduction_for_comms(True)


def layers_of(model: Any) -> list[torch.nn.Module]:
    """The repeated layers of a transformers model."""
    return [m for m in model.modules() if type(m).__name__ in (model._no_split_modules or ())]  # noqa: SLF001


def prepare(layers: Sequence[torch.nn.Module], *, checkpointing: bool, backend: str) -> None:
    """Compile each layer by `backend` if there is one, and with `checkpointing` keep its input alone.

    Before they are sharded, so that gathering stays outside of what is compiled. Transformers' own
    switch for checkpointing works only with dropout on.
    """
    for layer in layers:
        if backend:
            layer.forward = torch.compile(layer.forward, backend=backend)
        if checkpointing:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)


def _has_bfloat16(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)


@torch.no_grad()
def _entropy(logits: torch.Tensor, normaliser: torch.Tensor) -> torch.Tensor:
    """H = log Z - sum p * logit, in nats."""
    return normaliser - torch.softmax(logits, dim=-1).mul_(logits).sum(dim=-1)
