"""Where the pods of a job would best stand: near its learner, level by level (pure).

The order of `services.planner.core.planning.placement`, which gives the heaviest share to the actor
nearest to the learner: node, topology domain, zone. It is a wish and no demand, so a job that
finds no room nearby starts all the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ebbtide import labels
from ebbtide_operator.core.pods import LEARNER

_WEIGHTS = (100, 60, 20, 10)
_KINDS = ("podAffinity", "podAntiAffinity", "nodeAffinity")
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def near_learner(marks: Mapping[str, str], topology: Sequence[str]) -> dict[str, Any]:
    """The affinity of a pod with the labels `marks`; `topology`: node labels, nearest first."""
    learner = {labels.JOB_UID: marks.get(labels.JOB_UID, ""), labels.ROLE: LEARNER}
    terms = [
        {
            "weight": weight,
            "podAffinityTerm": {"topologyKey": key, "labelSelector": {"matchLabels": learner}},
        }
        for weight, key in zip(_WEIGHTS, topology, strict=False)
    ]
    return {"podAffinity": {PREFERRED: terms}} if terms else {}


def joined_affinity(own: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Both affinities: what either demands is demanded, and what either prefers is preferred."""
    found: dict[str, Any] = {}
    for kind in _KINDS:
        parts = [part[kind] for part in (own, added) if part.get(kind)]
        if parts:
            preferred = [term for part in parts for term in part.get(PREFERRED, ())]
            rest = {name: value for part in parts for name, value in part.items()}
            found[kind] = {**rest, PREFERRED: preferred} if preferred else rest
    return found
