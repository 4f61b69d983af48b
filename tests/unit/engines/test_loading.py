"""What a policy is loaded from is what was published."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ebbtide.adapters.blobs import open_blobs
from ebbtide.engines.emulated import EmulatedEngine
from ebbtide.engines.emulation import Emulated
from ebbtide.engines.loading import load_policy
from ebbtide.engines.policies import INDEX_NAME
from ebbtide.engines.publication import write_publication
from ebbtide.errors import Corrupt
from ebbtide.testing.clock import VirtualClock
from ebbtide.wire import PolicyIndex, Ref, digest


def publish(folder: Path) -> tuple[PolicyIndex, Ref]:
    (folder / "config.json").write_text('{"rope_theta": 10000.0}')
    index = write_publication(
        folder,
        {"weight": torch.ones(3)},
        {},
        policy_n=3,
        attempt=1,
        probe_tokens=b"",
        probe_logprobs=b"",
        max_shard_bytes=1 << 30,
    )
    data = (folder / INDEX_NAME).read_bytes()
    return index, Ref(INDEX_NAME, digest(data), len(data))


@pytest.mark.parametrize("name", [INDEX_NAME, "config.json"])
async def test_a_file_that_was_changed_in_place_is_not_loaded(tmp_path: Path, name: str) -> None:
    index, ref = publish(tmp_path)
    engine = EmulatedEngine(Emulated(), clock=VirtualClock())
    blobs = open_blobs(f"file://{tmp_path}")
    data = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(data.replace(b"0", b"1"))
    with pytest.raises(Corrupt, match="digest differs"):
        await load_policy(index.policy, ref, blobs=blobs, engine=engine, tolerance=1.0)
