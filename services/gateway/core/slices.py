"""Samples of some steps by what they are alike in, from the ledger's records (pure)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from ebbtide.slices import DIGITS, Seen, age, bucket, figures_of, seen_of, sign
from ebbtide.wire import Accepted, SampleKey, Scored
from services.gateway.core.history import StepView

KEYS = ("step", "purpose", "task", "length", "prompts", "policy", "reward", "sign", "age")


def sliced(
    views: Iterable[StepView], by: Sequence[str], purpose: str | None, *, threshold: float
) -> list[dict[str, Any]]:
    """Figures (ebbtide.api.Slice) by some of KEYS, in order of the keys' values."""
    groups: defaultdict[tuple[str, ...], list[Seen]] = defaultdict(list)
    for places, seen in (row for view in views for row in _rows(view, purpose)):
        groups[tuple(places[key] for key in by)].append(seen)
    ordered = sorted(groups.items(), key=lambda item: [_rank(value) for value in item[0]])
    return [
        {"key": dict(zip(by, values, strict=True))}
        | figures_of(seen, threshold=threshold).model_dump(by_alias=True)
        for values, seen in ordered
    ]


def _rank(value: str) -> tuple[int, int, str]:
    """Numbers by size, whatever follows them; words after them."""
    digits = value.lstrip("v").partition("-")[0].partition(" ")[0].rstrip("+")
    return (0, int(digits), value) if digits.isdecimal() else (1, 0, value)


def _rows(view: StepView, purpose: str | None) -> Iterator[tuple[Mapping[str, str], Seen]]:
    for key in view.keys(purpose):
        accepted, scored = view.accepted[key], view.scored.get(key)
        yield _places(view, key, accepted, scored), seen_of(accepted, scored)


def _places(
    view: StepView, key: SampleKey, accepted: Accepted, scored: Scored | None
) -> dict[str, str]:
    """Where the sample belongs by each key; empty: it is not known."""
    group, purpose = view.group(key.group), view.purpose(key.group)
    digests = dict(view.plan.digests) if view.plan else {}
    source = "dataset" if purpose == "train" else "eval_dataset"
    return {
        "step": str(key.step_issued),
        "purpose": purpose,
        "task": group.task if group else "",
        "length": bucket(accepted.n_tokens),
        "prompts": digests.get(source, "")[:DIGITS],
        "policy": f"v{accepted.policy.n} {accepted.policy.digest[:DIGITS]}",
        "reward": scored.scorer_digest[:DIGITS] if scored else "",
        "sign": sign(seen_of(accepted, scored).reward),
        "age": age(accepted.policy.n, view.plan.policy.n) if view.plan else "",
    }
