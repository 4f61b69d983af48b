"""The policies that stand side by side, each a row of choices (planner.md 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ebbtide.errors import Refused
from services.planner.core.planning.assignment import Kind
from services.planner.simulate.believing import Belief
from services.planner.simulate.rollout import Cache

Rule = Kind | Literal["longest-fifth"]
Moves = Literal["none", "tau", "global-cut", "benefit", "level"]
Released = Literal["hold", "stage", "finish", "elastic"]
"""Never; when all have decoded; each when it has; each when that pays (the planner's own rule)."""


@dataclass(frozen=True)
class Policy:
    """`chosen`: the number of actors is decided each step, else it is the scenario's.

    weight: RLHFless's lambda; None: value of time. more_prompts, more_samples: so many times as
    many are begun as are needed; what has not ended then is begun `anew` later, or carried `on`
    with its tokens. overlaps: what runs beside the next decoding. shares_gpus: actors and learner
    take turns on the same GPUs (HybridFlow) or on halves of them (FlexRLHF).
    """

    name: str
    about: str
    belief: Belief = "none"
    rule: Rule = "round-robin"
    chosen: bool = False
    weight: float | None = None
    released: Released = "hold"
    moves: Moves = "none"
    tau: float = 0.7
    cache: Cache = "engine"
    more_prompts: float = 1.0
    more_samples: float = 1.0
    unfinished: Literal["none", "anew", "on"] = "none"
    overlaps: Literal["none", "score", "learn"] = "none"
    shares_gpus: Literal["no", "turns", "halves"] = "no"
    tail: bool = False
    spot: bool = False
    on_policy: bool = True


OURS = Policy(
    "ours",
    "blend of history and siblings, unequal groups, chosen count, moves that pay",
    belief="blend",
    rule="unequal",
    chosen=True,
    released="elastic",
    moves="benefit",
    cache="service",
)
RLHFLESS = Policy(
    "rlhfless",
    "as published: last epoch's length, equal counts, lambda 0.7, cut at tau 0.7",
    belief="ewma",
    rule="equal-count",
    chosen=True,
    weight=0.7,
    released="finish",
    moves="tau",
    cache="service",
)
STATIC = Policy("static", "fixed actors, held to the end, engines' prefix caches on")

POLICIES: Sequence[Policy] = (
    STATIC,
    replace(STATIC, name="static-no-cache", about="static without prefix caches", cache="none"),
    replace(
        STATIC, name="static-release", about="static; each leaves when done", released="finish"
    ),
    RLHFLESS,
    replace(
        RLHFLESS,
        name="rlhfless-weak",
        about="RLHFless with a predictor that is right about 44 % of the prompts",
        belief="weak",
    ),
    Policy(
        "rlhfuse",
        "one global cut at a fifth of the samples; freed actors leave",
        released="finish",
        moves="global-cut",
        overlaps="score",
    ),
    Policy(
        "streamrl",
        "the longest fifth on actors of their own, longest first",
        belief="ewma",
        rule="longest-fifth",
        overlaps="score",
    ),
    Policy(
        "seer",
        "divided rollout: samples move freely to level the actors, longest groups first",
        belief="blend",
        rule="lpt",
        moves="level",
    ),
    Policy(
        "tailsieve",
        "the k longest isolated, k by the cost model",
        belief="ewma",
        rule="top-k",
        released="finish",
    ),
    Policy(
        "rollpacker",
        "tail batching: a quarter more is begun, what is late goes to rounds of long ones",
        more_prompts=1.25,
        more_samples=1.25,
        unfinished="anew",
        overlaps="score",
    ),
    Policy(
        "partial",
        "partial rollouts (Kimi, APRIL): half more is begun, the rest goes on next step",
        more_prompts=1.5,
        unfinished="on",
        on_policy=False,
    ),
    Policy(
        "oppo",
        "a little more is begun and goes on next step; scoring streams",
        more_prompts=1.0625,
        unfinished="on",
        overlaps="score",
        on_policy=False,
    ),
    Policy(
        "one-step-off",
        "decodes the next batch while the learner works",
        overlaps="learn",
        on_policy=False,
    ),
    Policy(
        "async",
        "bounded staleness (AReaL): as many more are under way as one step takes",
        more_prompts=2.0,
        unfinished="on",
        overlaps="learn",
        on_policy=False,
    ),
    Policy("hybridflow", "actors and learner take turns on all GPUs", shares_gpus="turns"),
    Policy("flexrlhf", "half of the GPUs decode, half learn", shares_gpus="halves"),
    OURS,
    Policy(
        "oracle",
        "knows every length; else as ours, and in hindsight the best of all on-policy ones",
        belief="known",
        rule="unequal",
        chosen=True,
        released="elastic",
        moves="benefit",
        cache="service",
    ),
)

TAILED = replace(
    OURS, name="ours-tail", about="ours, the longest on tensor-parallel actors", tail=True
)
SPOTTED = replace(OURS, name="ours-spot", about="ours, the bulk on spot actors", spot=True)

LADDER: Sequence[tuple[str, Policy]] = (
    ("", STATIC),
    ("releasing idle stages", replace(STATIC, name="ladder-1", released="stage")),
    ("early release of light actors", replace(STATIC, name="ladder-2", released="finish")),
    (
        "actor count",
        replace(STATIC, name="ladder-3", released="finish", chosen=True, belief="blend"),
    ),
    ("prediction and assignment", replace(OURS, name="ladder-4", moves="none", cache="engine")),
    ("dedup", replace(OURS, name="ladder-5", moves="none")),
    ("migration", OURS),
)
"""From static to ours, one cause after the other; what each saves depends on those before."""


def named(names: Sequence[str], *, tail: bool, spot: bool) -> list[Policy]:
    """The policies of these names, or all that the scenario has actors for."""
    every = [*POLICIES, *([TAILED] if tail else []), *([SPOTTED] if spot else [])]
    every = [replace(p, tail=tail, spot=spot) if p.belief == "known" else p for p in every]
    known = {policy.name: policy for policy in every}
    for number, name in enumerate(names):
        if name not in known:
            raise Refused(
                f"no policy {name} here, one of: {', '.join(known)}", field=f"/policies/{number}"
            )
    return [known[name] for name in names] or every
