"""A simulation in words and as JSON values (pure)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from services.planner.simulate.policies import POLICIES
from services.planner.simulate.prefill import Prefill
from services.planner.simulate.results import ORACLE, Results, Saving
from services.planner.simulate.scenario import Scenario
from services.planner.simulate.statistics import Estimate, Point

_OFF = frozenset(policy.name for policy in POLICIES if not policy.on_policy)
_MARK = "*"

FIGURES = (
    "decode_seconds",
    "step_seconds",
    "decoding",
    "held",
    "busy",
    "idle",
    "loading",
    "draining",
    "wasted",
    "others",
    "decode_dollars",
    "dollars",
    "worth",
    "tail_seconds",
    "actors",
    "prefill_tokens",
    "moves",
    "moved_tokens",
)
HEADS = (
    "policy",
    "decode s",
    "of static",
    "GPU-s",
    "of static",
    "$/step",
    "of static",
    "tail s",
    "N",
    "moves",
    "oracle share",
)


class Summary(NamedTuple):
    """What stands at the top of the page."""

    lines: Sequence[tuple[str, str]]
    tiles: Sequence[tuple[str, str, str]]


def as_json(
    results: Results,
    fronts: Mapping[str, Sequence[Point]],
    savings: Sequence[Saving],
    prefill: Prefill | None,
) -> dict[str, Any]:
    """report.json; every figure per step, with its 95 % interval over seeds. NaN becomes null."""
    return {
        "scenario": results.scenario.model_dump(mode="json", by_alias=True),
        "seeds": [seed.seed for seed in results.seeds],
        "steps": len(results.seeds[0].bounds),
        "policies": {name: _policy(results, name) for name in results.names},
        "bound": {
            "decode_seconds_of_static": _numbers(results.bound_ratio("seconds")),
            "gpu_seconds_of_static": _numbers(results.bound_ratio("gpu_seconds")),
        },
        "fronts": {name: [p._asdict() for p in points] for name, points in fronts.items()},
        "savings": [saving._asdict() for saving in savings],
        "prefill": None if prefill is None else {**prefill._asdict(), "saved": prefill.saved},
    }


def _policy(results: Results, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {figure: _numbers(results.of(name, figure)) for figure in FIGURES}
    compared = ("decode_seconds", "step_seconds", "decoding", "dollars")
    found["of_static"] = {figure: _numbers(results.ratio(name, figure)) for figure in compared}
    if ORACLE in results.names:
        found["oracle_share"] = _numbers(results.oracle_share(name))
    return found


def _numbers(found: Estimate) -> dict[str, float | None]:
    return {key: value if math.isfinite(value) else None for key, value in found._asdict().items()}


def table(results: Results) -> str:
    """Aligned text, a line per policy."""
    rows = [HEADS, *(_row(results, name) for name in results.names)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADS))]
    lines = ["  ".join(c.ljust(w) for c, w in zip(r, widths, strict=True)).rstrip() for r in rows]
    low, cost = results.bound_ratio("seconds"), results.bound_ratio("gpu_seconds")
    lines.append(f"bound: no policy decodes in less than {low.mean:.3f} of static's time,")
    lines.append(f"       nor with fewer than {cost.mean:.3f} of its GPU-seconds")
    if any(row[0].endswith(_MARK) for row in rows):
        lines.append(f"{_MARK} not on-policy: it learns from answers of an older policy, too")
    return "\n".join(lines)


def _row(results: Results, name: str) -> tuple[str, ...]:
    share = _short(results.oracle_share(name).mean) if ORACLE in results.names else ""
    money = results.of(name, "dollars").mean
    return (
        f"{name}{_MARK}" if name in _OFF else name,
        f"{results.of(name, 'decode_seconds').mean:.2f}",
        results.ratio(name, "decode_seconds").words(),
        f"{results.of(name, 'decoding').mean:.1f}",
        results.ratio(name, "decoding").words(),
        f"{money:.4f}" if math.isfinite(money) else "unknown",
        _short(results.ratio(name, "dollars").mean),
        f"{results.of(name, 'tail_seconds').mean:.2f}",
        f"{results.of(name, 'actors').mean:.1f}",
        f"{results.of(name, 'moves').mean:.1f}",
        share,
    )


def _short(value: float) -> str:
    return f"{value:.3f}" if math.isfinite(value) else "unknown"


def _setting(scenario: Scenario) -> str:
    work, actors = scenario.work, scenario.actors
    return (
        f"{work.prompts_per_step} prompts x {work.group_size} samples a step on up to"
        f" {actors.count} actors of {actors.tensor_parallel} x {actors.gpu}"
    )


def summarised(results: Results) -> Summary:
    """Lines and tiles."""
    scenario = results.scenario
    work = scenario.work
    lines = [
        ("simulated", f" - {len(results.seeds)} seeds, {work.epochs} epochs, {scenario.model}"),
        (
            "",
            _setting(scenario),
        ),
    ]
    tiles = []
    for name in ("ours", "rlhfless", "ours-tail", "ours-spot"):
        if name in results.names:
            time = results.ratio(name, "decode_seconds")
            cost = results.ratio(name, "decoding")
            tiles.append(
                (
                    f"{cost.mean:.1%}",
                    f"{name}: GPU-seconds of decoding, of static",
                    f"at {time.mean:.3f} of its time",
                )
            )
    return Summary(lines, tiles)
