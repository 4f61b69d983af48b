"""Whether a prefill service pays: what actors compute twice against what the service costs (pure).

An actor that gets samples of a prompt computes it, though another one has. With a service each
prompt is computed once, and handed over. Everything is weighed per step and in seconds of an actor,
over the mean of the last steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

HYSTERESIS = 0.25
"""The other way must be cheaper by this share."""


class Prompts(NamedTuple):
    """What prompts came to in one step. Tokens do not count a prompt's last one.

    by_actors: computed by actors; imported: pulled by them; distinct: of each distinct prompt once;
    most: had every actor that had samples of a prompt computed it. filling: seconds that actors
    spent on prompts, whether computed or imported; seconds: of the whole step.
    """

    by_actors: int
    imported: int
    distinct: int
    most: int
    filling: float
    seconds: float

    @property
    def twice(self) -> int:
        """Tokens that actors compute beyond once each, or would without the service.

        A sample that is resumed is computed anew, and that is no matter of the service's: so it is
        no more than what the holders of its group can come to.
        """
        return max(0, min(self.by_actors + self.imported, self.most) - self.distinct)


class Rates(NamedTuple):
    """Seconds of an actor, for one token: to compute it (None: not known), and to take it over.

    `service`: price of the service in actors.
    """

    compute: float | None
    take_over: float
    service: float


class Verdict(NamedTuple):
    """`saved`, `spent`: by the service, in seconds of an actor per step."""

    service: bool
    saved: float
    spent: float
    reason: str


def judge(steps: Sequence[Prompts], rates: Rates, *, now: bool) -> Verdict:
    """`now`: whether there is a service at present; it stays so unless the other clearly pays."""
    if not steps:
        return Verdict(now, 0.0, 0.0, "kept: no step has been counted yet")
    if rates.compute is None:
        return Verdict(now, 0.0, 0.0, "kept: it is not known yet what a prompt's token takes")
    twice = sum(step.twice for step in steps) / len(steps)
    seconds = sum(step.seconds for step in steps) / len(steps)
    moved = sum(min(step.by_actors + step.imported, step.most) for step in steps) / len(steps)
    saved = twice * rates.compute
    spent = seconds * rates.service + moved * rates.take_over
    wanted = saved > spent * (1 - HYSTERESIS if now else 1 + HYSTERESIS)
    return Verdict(wanted, saved, spent, _words(twice, saved, spent, now=now, wanted=wanted))


def _words(twice: float, saved: float, spent: float, *, now: bool, wanted: bool) -> str:
    if wanted != now:
        head = "pays" if wanted else "does not pay any more"
    elif wanted:
        head = (
            "pays still" if saved > spent else f"kept: the other gains less than {HYSTERESIS:.0%}"
        )
    else:
        close = saved > spent
        head = f"kept away: it gains less than {HYSTERESIS:.0%}" if close else "does not pay"
    return (
        f"a service {head}: it would save {twice:.0f} prompt tokens a step that actors compute more"
        f" than once, {saved:.2f} s of an actor, and cost {spent:.2f} s, held and by hand-overs"
    )
