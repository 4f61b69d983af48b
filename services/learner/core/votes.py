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
    ranks: dict[str, list[int]] = {}
    for rank, (_, _, why) in failed:
        ranks.setdefault(why, []).append(rank)
    detail = "; ".join(f"{_who(some, len(votes))}: {why}" for why, some in ranks.items())
    return Refusal(code=failed[0][1][0], detail=detail[:2000])


def _who(ranks: list[int], of: int) -> str:
    """Those that say the same, in words."""
    if len(ranks) == 1:
        return f"rank {ranks[0]}"
    return "every rank" if len(ranks) == of else f"ranks {', '.join(map(str, ranks))}"
