"""Publications of a policy: safetensors files with an index of per-tensor digests (protocol.md 7).

The learner writes them, the torch engine reads them. A publication is itself a Hugging Face
export: beside `index.msgpack` lie `model*.safetensors`, and whatever else the writer put into
the folder before (config.json, tokenizer files), which the index names too.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

import torch
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ebbtide import wire
from ebbtide.engines.merging import merged
from ebbtide.engines.policies import INDEX_NAME, policy_digest, read_index
from ebbtide.errors import Corrupt
from ebbtide.wire import AdapterOf, PolicyIndex, PolicyRef, PolicyTensor, Ref

MAX_SHARD_BYTES = 4 << 30
_CHUNK = 8 << 20
A = TypeVar("A")
B = TypeVar("B")


def tied_names(model: torch.nn.Module) -> dict[str, str]:
    """Map each parameter name that shares another's storage to the stored one."""
    stored: dict[int, str] = {}
    aliases: dict[str, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        first = stored.setdefault(id(parameter), name)
        if first != name:
            aliases[name] = first
    return aliases


def write_publication(
    folder: Path,
    tensors: Mapping[str, torch.Tensor],
    aliases: Mapping[str, str],
    *,
    policy_n: int,
    attempt: int,
    probe_tokens: bytes,
    probe_logprobs: bytes,
    adapter: AdapterOf | None = None,
    max_shard_bytes: int = MAX_SHARD_BYTES,
) -> PolicyIndex:
    """Write `tensors` (canonical names, any device) and the index into `folder`; index last.

    Names in `aliases` (tied name -> stored name) are left out of the files. Paths of
    `index.files` are relative to the folder, so a publication may be copied whole. With `adapter`
    the tensors are adapters, and lie where PEFT looks for them.
    """
    folder.mkdir(parents=True, exist_ok=True)
    stored = {name: _on_cpu(t) for name, t in tensors.items() if name not in aliases}
    stem = "adapter_model" if adapter else "model"
    files = _write_shards(folder, stored, max_shard_bytes, stem)
    described = _describe(stored, files)
    names = sorted(p.name for p in folder.iterdir() if p.is_file() and p.name != INDEX_NAME)
    base = adapter.digest if adapter else ""
    index = PolicyIndex(
        policy=PolicyRef(n=policy_n, attempt=attempt, digest=policy_digest(described, base)),
        tensors=described,
        aliases=tuple(sorted(aliases.items())),
        files=tuple(_parallel(lambda name: _file_ref(folder / name), names)),
        probe_tokens=probe_tokens,
        probe_logprobs=probe_logprobs,
        adapter=adapter,
    )
    _write_whole(folder / INDEX_NAME, wire.encode(index))
    return index


def read_publication(index_path: Path) -> tuple[PolicyIndex, dict[str, torch.Tensor]]:
    """Read index and tensors (on the CPU), every tensor verified; raises Corrupt.

    The result has canonical names without aliases; `index.aliases` says what is tied. Adapters are
    added to their base.
    """
    index = read_index(index_path)
    tensors = _verified(index_path, index)
    if index.adapter is None:
        return index, tensors
    base, whole = read_publication(index_path.parent / index.adapter.base.path)
    if base.policy.digest != index.adapter.digest:
        raise Corrupt(f"policy {index.policy.n} is made for another base")
    return index, merged(whole, tensors, index.adapter.scale)


def _verified(index_path: Path, index: PolicyIndex) -> dict[str, torch.Tensor]:
    tensors = _load(index_path.parent, index)
    bad = [
        name for name, good in _parallel(lambda t: _verify(t, tensors), index.tensors) if not good
    ]
    if bad:
        raise Corrupt(f"policy {index.policy.n}: tensor {bad[0]} and {len(bad) - 1} more differ")
    return {t.name: tensors[t.name] for t in index.tensors}


def tensor_digest(tensor: torch.Tensor) -> str:
    """SHA-256 of a contiguous CPU tensor's bytes, in row-major order, little-endian."""
    return hashlib.sha256(tensor.reshape(-1).view(torch.uint8).numpy().data).hexdigest()


def _on_cpu(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to("cpu").contiguous()


def _write_shards(
    folder: Path, tensors: Mapping[str, torch.Tensor], max_shard_bytes: int, stem: str
) -> dict[str, str]:
    """Write stem*.safetensors; returns the file name of each tensor."""
    plan = split_torch_state_dict_into_shards(
        dict(tensors),
        max_shard_size=max_shard_bytes,
        filename_pattern=f"{stem}{{suffix}}.safetensors",
    )
    for file, names in plan.filename_to_tensors.items():
        # Clones, because safetensors refuses tensors that view one storage (a flat buffer's).
        save_file({n: tensors[n].clone() for n in names}, folder / file, metadata={"format": "pt"})
    if plan.is_sharded:
        table = {"metadata": plan.metadata, "weight_map": plan.tensor_to_filename}
        _write_whole(folder / f"{stem}.safetensors.index.json", json.dumps(table).encode())
    return {name: file for file, names in plan.filename_to_tensors.items() for name in names}


def _describe(
    tensors: Mapping[str, torch.Tensor], files: Mapping[str, str]
) -> tuple[PolicyTensor, ...]:
    def one(name: str) -> PolicyTensor:
        tensor = tensors[name]
        dtype = str(tensor.dtype).removeprefix("torch.")
        return PolicyTensor(name, dtype, tuple(tensor.shape), files[name], tensor_digest(tensor))

    return tuple(_parallel(one, sorted(tensors)))


def _load(folder: Path, index: PolicyIndex) -> dict[str, torch.Tensor]:
    tensors: dict[str, torch.Tensor] = {}
    try:
        for file in sorted({t.file for t in index.tensors}):
            tensors.update(load_file(folder / file))
    except (OSError, SafetensorError) as error:
        raise Corrupt(f"policy {index.policy.n}: {error}") from error
    return tensors


def _verify(described: PolicyTensor, tensors: Mapping[str, torch.Tensor]) -> tuple[str, bool]:
    tensor = tensors.get(described.name)
    good = (
        tensor is not None
        and tuple(tensor.shape) == described.shape
        and str(tensor.dtype) == f"torch.{described.dtype}"
        and tensor_digest(tensor) == described.digest
    )
    return described.name, good


def _file_ref(path: Path) -> Ref:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
    return Ref(path=path.name, digest=digest.hexdigest(), size=path.stat().st_size)


def _write_whole(path: Path, data: bytes) -> None:
    part = path.with_name(path.name + ".part")
    part.write_bytes(data)
    part.replace(path)


def _parallel(function: Callable[[A], B], items: Iterable[A]) -> list[B]:
    """Map in threads: hashing releases the interpreter lock."""
    with ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        return list(pool.map(function, items))
