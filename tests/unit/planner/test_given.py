"""The model's own files as the policy of a job that never learns."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest

from ebbtide import logs, paths
from ebbtide.engines.policies import policy_digest
from ebbtide.engines.publication import read_publication
from ebbtide.errors import Refused, Temporary
from ebbtide.rights import blob_writes
from ebbtide.spec import RLHFJobSpec
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.jobs import a_spec
from ebbtide.wire import PolicyIndex, decode
from services.planner.app.given import find_given
from services.planner.core.config import Given
from tests.e2e.tiny import write_model

UID = "uid-1"
PLACE = f"{paths.base(UID)}index.msgpack"


async def found(model: Path, blobs: FakeBlobs, mode: str = "rollout-only") -> Given | None:
    spec = RLHFJobSpec.model_validate_json(json.dumps(a_spec(model={"uri": str(model)}, mode=mode)))
    log = logs.setup("error", stream=io.StringIO())
    return await find_given(spec, uid=UID, blobs=blobs, log=log)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model")


async def test_what_is_published_is_read_and_verified_as_any_policy(
    model: Path, tmp_path: Path
) -> None:
    blobs = FakeBlobs(folder=tmp_path / "store")
    given = await found(model, blobs)
    assert given is not None
    index = decode(blobs.objects[PLACE], PolicyIndex)
    for file in index.files:
        path = tmp_path / "there" / file.path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(blobs.objects[paths.base(UID) + file.path])
    (tmp_path / "there/index.msgpack").write_bytes(blobs.objects[PLACE])
    read, tensors = read_publication(tmp_path / "there/index.msgpack")
    assert read.policy == given.policy
    assert policy_digest(index.tensors) == given.policy.digest
    assert "lm_head.weight" not in tensors
    assert dict(index.aliases) == {"lm_head.weight": "model.embed_tokens.weight"}
    assert {"config.json", "tokenizer.json"} <= {file.path for file in index.files}


async def test_a_planner_that_takes_over_finds_the_same_policy_though_the_files_changed(
    model: Path,
) -> None:
    blobs = FakeBlobs()
    first = await found(model, blobs)
    shutil.rmtree(model)
    assert await found(model, blobs) == first


async def test_the_index_comes_last_so_a_broken_copy_is_no_publication(model: Path) -> None:
    blobs = FakeBlobs(outcomes=iter(["ok", "fail"]))
    with pytest.raises(Temporary):
        await found(model, blobs)
    assert PLACE not in blobs.objects
    assert await found(model, blobs) is not None


async def test_a_job_that_learns_is_given_nothing(model: Path) -> None:
    blobs = FakeBlobs()
    assert await found(model, blobs, mode="sync") is None
    assert blobs.objects == {}


async def test_a_folder_that_cannot_be_published_is_refused_at_its_field(tmp_path: Path) -> None:
    with pytest.raises(Refused) as refused:
        await found(tmp_path / "none", FakeBlobs())
    assert refused.value.field == "/model/uri"


def test_the_planner_may_write_there() -> None:
    assert f"{paths.base(UID)}*" in blob_writes("planner", UID)
