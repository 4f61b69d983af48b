"""How a job ended, with what its reports add to the operator's message."""

from __future__ import annotations

import asyncio

import msgspec

from ebbtide import paths
from ebbtide.errors import EbbtideError
from ebbtide.ports import Blobs, Resource
from services.gateway.core import faults
from services.gateway.core.state import State, state_of

_LOOKED_AT = 16


async def ending(job: Resource, *, blobs: Blobs) -> State:
    """The state of `job`, whose message also says if most of its last scores were faults."""
    state = state_of(job)
    if not state.terminal:
        return state
    try:
        words = await _faults(job.metadata.uid, blobs)
    except EbbtideError:  # how the job ended is known without the blob store
        return state
    message = "; ".join(text for text in (state.message, words) if text)
    return msgspec.structs.replace(state, message=message)


async def _faults(uid: str, blobs: Blobs) -> str:
    found = await blobs.list(paths.step_reports(uid))
    last = await asyncio.gather(*map(blobs.get, found[-_LOOKED_AT:]))
    return faults.majority([msgspec.json.decode(data) for data in last])
