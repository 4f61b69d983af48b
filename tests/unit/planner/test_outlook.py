"""In-step re-planning: what is left of a step, by what its ended answers say."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from ebbtide.errors import Refused
from ebbtide.spec import RLHFJobSpec
from ebbtide.wire import Accepted, Dispatch, Dispatched
from services.planner.app.profiles import find_profile
from services.planner.core.curves import Curves
from services.planner.core.lengths import Lengths, make_lengths
from services.planner.core.outlook import Outlook
from services.planner.core.samples import ACCEPTED, OpenStep
from services.planner.core.steering import straight_profile
from tests.unit.planner.builders import a_ref
from tests.unit.planner.test_lengths import a_round, a_step, end
from tests.worlds.gateway import a_job

CURVE = straight_profile("model", first=0.1, more=0.0)


def a_look(*, turns: int = 1) -> tuple[Outlook, Lengths, OpenStep]:
    """Six groups of two that were 100 tokens long; all samples run on one actor."""
    lengths = make_lengths("blend", limit=400)
    for _ in range(3):
        a_round(lengths, [100] * 6)
    step = a_step(1)
    groups = tuple(msgspec.structs.replace(group, turns=turns) for group in step.plan.groups)
    step.plan = msgspec.structs.replace(step.plan, groups=groups)
    lengths.opened(step.plan)
    for sample in range(step.size):
        hand = Dispatch(1, 1, sample)
        step.dispatched(sample, Dispatched(step.key(sample), hand, "a", step.plan.policy))
    return Outlook(lengths=lengths, curves=Curves(CURVE, measured=True)), lengths, step


def left(outlook: Outlook, step: OpenStep, now: float) -> float:
    found = outlook.remaining(step, slots=64, now=now)
    assert found is not None
    return found


def test_what_is_written_is_not_to_come_again() -> None:
    outlook, _, step = a_look()
    before = left(outlook, step, 0.0)
    assert 8.0 < before < 20.0
    for sample in range(step.size):
        step.progressed(sample, Dispatch(1, 1, sample), 80)
    assert left(outlook, step, 2.0) < 0.75 * before


def test_one_that_its_sibling_shows_to_be_long_is_waited_for_longer() -> None:
    outlook, lengths, step = a_look()
    before = left(outlook, step, 0.0)
    end(lengths, step, 0, 380)
    step.states[0] = ACCEPTED
    assert left(outlook, step, 2.0) > before


def test_between_two_looks_the_last_answer_runs_down() -> None:
    outlook, lengths, step = a_look()
    before = left(outlook, step, 0.0)
    end(lengths, step, 0, 380)
    assert left(outlook, step, 0.5) == before - 0.5


def test_an_episode_that_waits_for_its_environment_is_still_to_come() -> None:
    for turns, awaited in ((1, 0), (2, 12)):
        outlook, _, step = a_look(turns=turns)
        for sample in range(step.size):
            key, hand = step.key(sample), Dispatch(1, 1, sample)
            accepted = Accepted(key, hand, a_ref("r"), step.plan.policy, 50, "stop")
            step.accepted(sample, accepted)
        assert step.awaited == awaited
        assert (left(outlook, step, 0.0) > 0.0) == (turns > 1)


def test_without_any_history_nothing_is_foretold() -> None:
    _, _, step = a_look()
    blind = Outlook(lengths=make_lengths("blend", limit=400), curves=Curves(CURVE, measured=True))
    assert blind.remaining(step, slots=64, now=0.0) is None


# --- the profile that a job names, and what is shown of decisions -----------------------------------


def a_spec(profile: str | None) -> RLHFJobSpec:
    spec = a_job(decode={"profile": profile} if profile else {})["spec"]
    return RLHFJobSpec.model_validate_json(msgspec.json.encode(spec))


def test_a_profile_is_read_from_its_file(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    file.write_bytes(msgspec.json.encode(CURVE))
    assert find_profile(a_spec(file.as_uri())) == CURVE
    assert find_profile(a_spec(None)) is None


@pytest.mark.parametrize(("text", "why"), [(None, "cannot read"), ("{}", "not a profile")])
def test_a_profile_that_cannot_be_used_is_refused_by_its_field(
    tmp_path: Path, text: str | None, why: str
) -> None:
    file = tmp_path / "profile.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(Refused, match=why) as refused:
        find_profile(a_spec(str(file)))
    assert refused.value.field == "/spec/decode/profile"
