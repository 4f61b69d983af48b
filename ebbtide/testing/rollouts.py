"""Builders of rollouts and of the requests that score them."""

from __future__ import annotations

from collections.abc import Sequence

from ebbtide import paths
from ebbtide.data.chunks import encode_rows
from ebbtide.ports import Blobs
from ebbtide.wire import (
    Dispatch,
    PolicyRef,
    PromptRef,
    PromptRow,
    Rollout,
    SampleKey,
    ScoreRequest,
    Span,
    Timings,
    encode,
    pack_floats,
    pack_ints,
    pack_mask,
)


def a_rollout(
    ids: Sequence[int], *, uid: str = "job", index: int = 0, finish: str = "stop"
) -> Rollout:
    """A finished sample whose response is `ids`, by policy 0."""
    return Rollout(
        key=SampleKey(uid, 0, 0, index),
        dispatch=Dispatch(1, 1, index),
        prompt_id="rows.jsonl:1",
        prompt_tokens=pack_ints([1]),
        tokens=pack_ints(ids),
        logprobs=pack_floats([0.0] * len(ids)),
        action_mask=pack_mask([1] * len(ids)),
        spans=(Span(0, len(ids), PolicyRef(0, 1, "policy-0")),),
        finish=finish,
        timings=Timings(0.0, 0.0, 0.0),
        actor="actor-0",
    )


async def a_request(
    blobs: Blobs,
    rollout: Rollout,
    *,
    reference: bytes = b"{}",
    task: str = "t",
    frame: tuple[bytes, bytes] = (b"", b""),
) -> ScoreRequest:
    """The request that scores `rollout`; writes it and a dataset chunk of its one prompt.

    `frame`: packed ids around what an environment says.
    """
    row = PromptRow(
        prompt_id=rollout.prompt_id,
        tokens=rollout.prompt_tokens,
        text="prompt",
        reference=reference,
        task=task,
        source="rows",
        opens=frame[0],
        closes=frame[1],
    )
    chunk = await blobs.put("datasets/d/chunks/000000.msgpack", encode_rows([row]))
    ref = await blobs.put(paths.rollouts(rollout.key, rollout.dispatch), encode(rollout))
    return ScoreRequest(rollout.key, 1, ref, row.prompt_id, PromptRef(chunk, 0))
