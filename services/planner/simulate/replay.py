"""`python -m services.planner.simulate.replay`: a run on standard input, `whatif` on standard output.

The input is one JSON object: {spec, steps, options}; `ebbtide whatif` collects it from the API.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from ebbtide.data.sources import local_path
from ebbtide.errors import Refused
from ebbtide.profiles import ProfileFile
from ebbtide.reports import StepReport
from ebbtide.spec import RLHFJobSpec
from services.planner.core.planning.profile import read_profile
from services.planner.core.planning.record import Lambda, ValueOfTime
from services.planner.core.steering import builtin_profile
from services.planner.simulate.whatif import (
    Option,
    Prices,
    Replayed,
    in_words,
    recorded_prices,
    recorded_steps,
    replay,
)

WRONG = 2


def main(text: str) -> int:
    """Run; returns the exit status."""
    try:
        document = json.loads(text)
        found = replayed(document)
    except (Refused, ValidationError, json.JSONDecodeError) as error:
        sys.stderr.write(f"ebbtide: {error}\n")
        return WRONG
    if document["options"].get("json"):
        sys.stdout.write(json.dumps(_plain(found), indent=2) + "\n")
    else:
        sys.stdout.write(in_words(found) + "\n")
    return 0


def replayed(document: Mapping[str, Any]) -> Replayed:
    """What the document asks; raises Refused, or ValidationError for what is no run."""
    spec = RLHFJobSpec.model_validate_json(json.dumps(document["spec"]))
    reports = [StepReport.model_validate_json(json.dumps(raw)) for raw in document["steps"]]
    asked = document["options"]
    steps = recorded_steps([one for one in reports if one.kind in ("train", "rollout")])
    known = recorded_prices(reports)
    prices = Prices(
        known.actor if asked.get("actorPrice") is None else asked["actorPrice"],
        known.held if asked.get("heldPrice") is None else asked["heldPrice"],
    )
    counts = asked.get("actors") or sorted({1, 2, 4, 8, *(one.actors for one in steps)})
    return replay(
        steps,
        _curve(spec),
        slots=spec.decode.slots,
        limit=spec.training.max_response_tokens,
        prices=prices,
        options=options_of(counts, asked.get("hourWorth", ()), asked.get("weights", ())),
        most=max(*counts, spec.decode.max_replicas),
    )


def options_of(
    counts: Sequence[int], hours: Sequence[float], weights: Sequence[float]
) -> list[Option]:
    """One option for each count, value of time and lambda; raises Refused."""
    if any(n < 1 for n in counts):
        raise Refused("a run needs at least one actor", field="--actors")
    if any(not 0 <= w <= 1 for w in weights):
        raise Refused("lambda lies within 0..1", field="--lambda")
    fixed = [Option(f"{n} actors", actors=n) for n in counts]
    valued = [Option(f"value of time {w:g} $/h", objective=ValueOfTime(w)) for w in hours]
    return [*fixed, *valued, *(Option(f"lambda {w:g}", objective=Lambda(w)) for w in weights)]


def _curve(spec: RLHFJobSpec) -> ProfileFile:
    uri = spec.decode.profile
    if uri is None:
        return builtin_profile(spec.decode)
    try:
        return read_profile(local_path(uri).read_bytes()).file
    except OSError as error:
        raise Refused(
            f"cannot read {uri}: {error.strerror}", field="/spec/decode/profile"
        ) from None


def _plain(found: Replayed) -> dict[str, Any]:
    return {
        **found._asdict(),
        "prices": found.prices._asdict(),
        "recorded": found.recorded._asdict(),
        "outcomes": [one._asdict() for one in found.outcomes],
    }


if __name__ == "__main__":
    sys.exit(main(sys.stdin.read()))
