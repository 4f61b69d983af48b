"""Gets a publication to this machine, loads it and compares its probe (protocol.md 7)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ebbtide.engines.policies import located, read_index
from ebbtide.errors import Corrupt
from ebbtide.ports import Blobs, Engine
from ebbtide.wire import PolicyRef, Ref, unpack_floats


async def load_policy(
    policy: PolicyRef, index: Ref, *, blobs: Blobs, engine: Engine, tolerance: float
) -> int:
    """Have `engine` hold `policy`; returns the size of its files in bytes.

    Raises Corrupt if a digest or the probe does not hold.

    The probe catches gross faults of a load, such as a stale tied head; that it is this very
    version and no neighbour is what the digests say.
    """
    path = await _gathered(policy, index, blobs)
    loaded = await engine.load(policy, path)
    published = read_index(path, policy)
    wanted = unpack_floats(published.probe_logprobs)
    found = unpack_floats(loaded.probe_logprobs)
    if wanted.shape != found.shape:
        raise Corrupt(f"the probe has {len(found)} log-probabilities, not {len(wanted)}")
    worst = float(np.abs(wanted - found).max(initial=0.0))
    if not worst <= tolerance:
        raise Corrupt(f"the probe of policy {policy.n} is off by {worst:.4f} (> {tolerance})")
    return sum(file.size for file in published.files)


async def _gathered(policy: PolicyRef, index: Ref, blobs: Blobs) -> Path:
    """The local index, with all its files beside it, and its base where it names that.

    Tensors are compared with the policy's digest once they are loaded. Nothing else says whether
    the index, the configuration and the tokenizer are what was published, so these are read here.
    """
    path = await _with_files(index, blobs, policy)
    adapter = read_index(path, policy).adapter
    if adapter is not None:
        await _with_files(located(index, adapter.base), blobs)
    return path


async def _with_files(index: Ref, blobs: Blobs, policy: PolicyRef | None = None) -> Path:
    """The local index, of `policy` if that is known, with its files; fetched once."""
    await blobs.fetch(index)
    path = await blobs.local(index)
    for file in read_index(path, policy).files:
        ref = located(index, file)
        if not file.path.endswith(".safetensors"):
            await blobs.fetch(ref)
        await blobs.local(ref)
    return path
