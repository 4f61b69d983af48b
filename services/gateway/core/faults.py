"""Whether most scores of some steps were faults: such a job may end well and have learned nothing (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any


def majority(reports: Sequence[Mapping[str, Any]]) -> str:
    """As "60 of 64 scores of the last 4 steps were faults (crash 60)"; empty up to one half.

    `reports`: step reports as JSON values. A fault is the answer's own (a training sample with a
    value, see docs/reward.md) or the verifier's (an invalid sample).
    """
    kinds: Counter[str] = Counter()
    judged = 0
    for report in reports:
        samples, rewards = report.get("samples") or {}, report.get("rewards") or {}
        held_out = (report.get("evaluation") or {}).get("samples", 0)
        kinds.update({"invalid": samples.get("invalid", 0), **(rewards.get("faults") or {})})
        judged += samples.get("valued", 0) + samples.get("invalid", 0) - held_out
    if 2 * kinds.total() <= judged:
        return ""
    listed = ", ".join(f"{kind} {count}" for kind, count in kinds.most_common() if count)
    steps = "the last step" if len(reports) == 1 else f"the last {len(reports)} steps"
    return f"{kinds.total()} of {judged} scores of {steps} were faults ({listed})"
