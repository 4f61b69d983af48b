"""From sharded parameters to a publication on disk: what actors load, and an export."""

from __future__ import annotations

import json
import posixpath
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from transformers import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING, AutoConfig

from ebbtide.engines.model_files import PUBLISHED_FILES
from ebbtide.engines.publication import write_publication
from ebbtide.errors import Temporary
from ebbtide.wire import AdapterOf, PolicyIndex, pack_floats, pack_ints
from services.learner.engine.gang import Gang
from services.learner.engine.gathering import whole_state
from services.learner.engine.lora import Adapters, adapted, plain
from services.learner.engine.policy import Policy
from services.learner.engine.reward_model import ScoreModel

PROBE_TOKENS = 32


@dataclass(frozen=True)
class Content:
    """What a publication holds: full tensors (rank 0 alone) and the probe (every rank).

    `adapters`: the tensors are theirs.
    """

    tensors: Mapping[str, torch.Tensor]
    aliases: Mapping[str, str]
    probe_tokens: bytes
    probe_logprobs: bytes
    adapters: Adapters | None = None


def collect(policy: Policy | ScoreModel, gang: Gang, *, dtype: torch.dtype) -> Content:
    """Gather what learns and score the probe; all ranks call it together.

    A reward model has no probe: no engine samples from it.
    """
    full = whole_state(policy.module, gang, learning_only=policy.adapters is not None)
    if isinstance(policy, ScoreModel):
        mine = {name: tensor.to(dtype) for name, tensor in policy.exported(full).items()}
        return Content(mine, policy.aliases, b"", b"")
    mine = full if policy.adapters is None else adapted(full)
    return replace(_content(policy, gang, mine, dtype), adapters=policy.adapters)


def collect_base(policy: Policy, gang: Gang, *, dtype: torch.dtype) -> Content:
    """What adapters are added to: the weights that do not learn; all ranks call it together."""
    assert policy.adapters is not None
    full = whole_state(policy.module, gang)
    with policy.adapters.off():
        return _content(policy, gang, plain(full), dtype)


def _content(
    policy: Policy, gang: Gang, tensors: Mapping[str, torch.Tensor], dtype: torch.dtype
) -> Content:
    tokens = probe(policy.module)
    return Content(
        tensors={name: tensor.to(dtype) for name, tensor in tensors.items()},
        aliases=policy.aliases,
        probe_tokens=pack_ints(tokens.numpy()),
        probe_logprobs=pack_floats(_score(policy, tokens, gang).cpu().numpy()),
    )


def probe(module: torch.nn.Module) -> torch.Tensor:
    """Return a fixed prompt spread over the vocabulary, shape (PROBE_TOKENS,)."""
    config: Any = module.config
    size = int(config.get_text_config().vocab_size)
    return torch.arange(1, PROBE_TOKENS + 1) * 7919 % size


@torch.no_grad()
def _score(policy: Policy, tokens: torch.Tensor, gang: Gang) -> torch.Tensor:
    row = tokens.to(gang.device)
    where = torch.arange(len(row) - 1, device=gang.device)
    return policy.score(row.unsqueeze(0), where, row[1:], temperature=1.0).logprobs


def write_content(
    folder: Path,
    content: Content,
    skeleton: Path,
    *,
    version: int,
    attempt: int,
    adapter: AdapterOf | None = None,
) -> PolicyIndex:
    """Write everything but the index's own upload into the new `folder` (rank 0).

    `skeleton`: the folder with config and tokenizer that `write_skeleton` made. `adapter`: the base
    of adapters. Raises Temporary when the disk does not take it.
    """
    try:
        shutil.copytree(skeleton, folder)
        if adapter is not None and content.adapters is not None:
            told = content.adapters.config(posixpath.dirname(adapter.base.path))
            (folder / "adapter_config.json").write_text(json.dumps(told))
        return write_publication(
            folder,
            content.tensors,
            content.aliases,
            policy_n=version,
            attempt=attempt,
            probe_tokens=content.probe_tokens,
            probe_logprobs=content.probe_logprobs,
            adapter=adapter,
        )
    except (OSError, SafetensorError) as error:
        raise Temporary(f"policy {version} cannot be written: {error}") from error


def write_skeleton(
    folder: Path,
    *,
    model: Path,
    tokenizer: Path,
    chat_template: str | None,
    dtype: torch.dtype,
    scores: bool = False,
) -> None:
    """Collect in the new `folder` what makes weights a Hugging Face export.

    `scores`: of a reward model.
    """
    folder.mkdir(parents=True)
    config = AutoConfig.from_pretrained(model, local_files_only=True)
    config.dtype = dtype
    if scores:
        config.num_labels = 1
        kind: type = MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING[type(config)]  # type: ignore[assignment] # one model
        config.architectures = [kind.__name__]
    config.save_pretrained(folder)
    wanted = [model / "generation_config.json", *(tokenizer / name for name in PUBLISHED_FILES)]
    for path in wanted:
        if path.is_file():
            shutil.copyfile(path, folder / path.name)
    if chat_template is not None:
        (folder / "chat_template.jinja").write_text(chat_template)
