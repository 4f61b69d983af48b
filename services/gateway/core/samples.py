"""One sample as the API shows it, and the cursor over a step's samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ebbtide.wire import (
    Dispatch,
    Dispatched,
    Error,
    Invalid,
    Rollout,
    SampleKey,
    Scored,
    Value,
    unpack_floats,
    unpack_ints,
)
from services.gateway.core import listing

Decode = Callable[[Sequence[int]], str]


class SampleCursor(msgspec.Struct, frozen=True, array_like=True):
    """The last sample that was given."""

    step: int
    group: int
    index: int
    turn: int


def page(
    keys: Sequence[SampleKey], *, step: int, after: str | None, limit: int
) -> tuple[list[SampleKey], str | None]:
    """At most `limit` of the sorted `keys` after the cursor, and the next cursor."""
    if after is not None:
        last = listing.decode(after, SampleCursor)
        seen = (last.step, last.group, last.index, last.turn)
        keys = [k for k in keys if (step, k.group, k.index, k.turn) > seen]
    chosen = list(keys[:limit])
    if len(keys) <= limit:
        return chosen, None
    end = chosen[-1]
    return chosen, listing.encode(SampleCursor(step, end.group, end.index, end.turn))


def view(
    rollout: Rollout,
    *,
    decode: Decode,
    purpose: str,
    scored: Scored | None,
    advantage: float | None,
) -> dict[str, Any]:
    """The rollout with its texts, score and versions (ebbtide.api.Sample)."""
    key = rollout.key
    return {
        "step": key.step_issued,
        "group": key.group,
        "index": key.index,
        "turn": key.turn,
        "purpose": purpose,
        "promptId": rollout.prompt_id,
        "prompt": decode(unpack_ints(rollout.prompt_tokens).tolist()),
        "response": decode(unpack_ints(rollout.tokens).tolist()),
        "nTokens": rollout.n_tokens,
        "finish": rollout.finish,
        "score": _score(scored),
        "advantage": advantage,
        "versions": [
            {"start": s.start, "end": s.end, "version": s.policy.n, "digest": s.policy.digest}
            for s in rollout.spans
        ],
        "actor": rollout.actor,
        "dispatch": _hand(rollout.dispatch),
    }


def whole(
    shown: Mapping[str, Any], rollout: Rollout, handed: Sequence[Dispatched]
) -> dict[str, Any]:
    """The view with tokens, log-probabilities and every hand-out (ebbtide.api.SampleWhole)."""
    return {
        **shown,
        "promptTokens": unpack_ints(rollout.prompt_tokens).tolist(),
        "tokens": unpack_ints(rollout.tokens).tolist(),
        "logprobs": [_number(x) for x in unpack_floats(rollout.logprobs).tolist()],
        "handOuts": [
            {
                "dispatch": _hand(one.dispatch),
                "actor": one.actor,
                "version": one.policy.n,
                "counts": one.dispatch == rollout.dispatch,
            }
            for one in handed
        ],
    }


def _number(logprob: float) -> float | None:
    """What an environment gave has none."""
    return None if math.isnan(logprob) else round(logprob, 6)


def _hand(hand: Dispatch) -> str:
    return f"{hand.attempt}.{hand.planner_epoch}.{hand.seq}"


def _score(scored: Scored | None) -> dict[str, Any]:
    match scored.score if scored else None:
        case Value(total=total, parts=parts, fault=fault):
            listed = [{"name": p.name, "value": p.value, "weighted": p.weighted} for p in parts]
            return {"kind": "value", "total": total, "parts": listed, "fault": fault}
        case Invalid(why=why):
            return {"kind": "invalid", "why": why}
        case Error(error_class=kind, detail=detail):
            return {"kind": "error", "why": f"{kind}: {detail}"}
        case _:
            return {"kind": "pending"}
