"""How ranks agree on what went wrong: each failure is a word with a detail."""

from __future__ import annotations

from collections.abc import Sequence

from ebbtide.errors import Conflict, Corrupt, EbbtideError, Refused, Temporary
from ebbtide.wire import Refusal

LONGEST = 400


def vote(error: EbbtideError) -> str:
    """What a rank says about `error`: the Refusal code, a colon, the detail."""
    match error:
        case Conflict():
            code = "policy"
        case Refused() | Corrupt():
            code = "invalid"
        case Temporary():
            code = "temporary"
        case _:
            code = "unknown"
    return f"{code}:{error}"[:LONGEST]


def verdict(votes: Sequence[str]) -> Refusal | None:
    """The refusal that all ranks give when any rank failed; the first rank's code counts."""
    failed = [(rank, said.partition(":")) for rank, said in enumerate(votes) if said]
    if not failed:
        return None
    detail = "; ".join(f"rank {rank}: {why}" for rank, (_, _, why) in failed)
    return Refusal(code=failed[0][1][0], detail=detail[:2000])
