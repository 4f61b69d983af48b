"""The policy of a job that never learns: the model's own files, published once and by file.

No learner runs, so nobody holds the model to publish it. The publication has no probe: there is
no second computation to compare an engine's with, and digests say whether it is the one.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec

from ebbtide import paths
from ebbtide.data.sources import local_path
from ebbtide.engines.model_files import PUBLISHED_FILES, TABLE, described, tied, weight_files
from ebbtide.engines.policies import INDEX_NAME, policy_digest
from ebbtide.errors import NotFound, Refused
from ebbtide.logs import Log
from ebbtide.ports import Blobs
from ebbtide.spec import ModelSpec, RLHFJobSpec
from ebbtide.wire import PolicyIndex, PolicyRef, Ref, decode, digest, encode
from services.planner.core.config import Given

_CONFIG = "config.json"


async def find_given(spec: RLHFJobSpec, *, uid: str, blobs: Blobs, log: Log) -> Given | None:
    """What all steps sample from; None where a learner publishes. Raises Refused for bad files.

    What is there is taken as it is: the model's files may change later, the job's policy does not.
    """
    if spec.learns:
        return None
    place = f"{paths.base(uid)}{INDEX_NAME}"
    try:
        data = await blobs.get(place)
    except NotFound:
        log.info("publishing the model's files", uri=spec.model.uri)
        index = await _published(blobs, spec.model, place)
        await blobs.put_if_absent(place, encode(index))
        data = await blobs.get(place)
    found = decode(data, PolicyIndex)
    log.info("policy given", policy=found.policy, tensors=len(found.tensors))
    return Given(found.policy, Ref(place, digest(data), len(data)))


async def _published(blobs: Blobs, model: ModelSpec, place: str) -> PolicyIndex:
    """Copy the files; the index, which makes them a publication, is the caller's to write."""
    target = place.removesuffix(INDEX_NAME)
    folder = local_path(model.uri)
    try:
        tensors = await asyncio.to_thread(described, folder, model.dtype)
        refs = [
            await blobs.put_file(f"{target}{file.name}", file) for file in _files(model, folder)
        ]
    except OSError as error:
        words = f"{error.filename or folder} cannot be read: {error.strerror or error}"
        raise Refused(words, field="/model/uri") from error
    if model.chat_template is not None:
        name = "chat_template.jinja"
        refs.append(await blobs.put(f"{target}{name}", model.chat_template.encode()))
    return PolicyIndex(
        policy=PolicyRef(n=0, attempt=0, digest=policy_digest(tensors)),
        tensors=tensors,
        aliases=tied({tensor.name: tensor for tensor in tensors}),
        files=tuple(msgspec.structs.replace(r, path=r.path.removeprefix(target)) for r in refs),
        probe_tokens=b"",
        probe_logprobs=b"",
    )


def _files(model: ModelSpec, folder: Path) -> list[Path]:
    """What makes the weights an export in Hugging Face format."""
    if not (folder / _CONFIG).is_file():
        raise Refused(f"{folder} has no {_CONFIG}", field="/model/uri")
    tokenizer = local_path(model.tokenizer_uri or model.uri)
    beside = [folder / TABLE, folder / "generation_config.json"]
    beside += [tokenizer / name for name in PUBLISHED_FILES]
    if model.chat_template is not None:
        beside = [file for file in beside if file.name != "chat_template.jinja"]
    there = [file for file in beside if file.is_file()]
    return [*weight_files(folder), folder / _CONFIG, *there]
