"""From a component of the job's spec to a scorer that never raises.

What a scorer raises is sorted here: memory is the answer's fault, the operating system's errors
are infrastructure, all else says that the verifier (not the answer) failed.
"""

from __future__ import annotations

import inspect
import math
import traceback
from importlib import import_module
from numbers import Real
from typing import Any

import msgspec

from ebbtide.errors import Refused, Temporary
from ebbtide.rewards.code import code
from ebbtide.rewards.outcomes import (
    Answer,
    Broken,
    Outcome,
    Reference,
    Scorer,
    Unusable,
    Worth,
)
from ebbtide.rewards.rules import rule
from ebbtide.sandbox.cell import Cell
from ebbtide.sandbox.proof import isolated
from ebbtide.spec import CodeReward, Component, FunctionReward, RuleReward

_DETAIL = 300


def scorer(component: Component, *, cell: Cell | None = None) -> Scorer:
    """The scorer of `component`; raises Refused when it cannot be had (a missing function).

    `cell`: where programs run; without one a cell is made and tried, if there is a program to run.
    """
    match component:
        case FunctionReward():
            return guarded(_function(component))
        case CodeReward():
            return guarded(code(component, cell or isolated()))
        case RuleReward():
            return guarded(rule(component))
        case _:
            detail = f"{component.type} is no scorer of this process: the reward service has it"
            raise Refused(detail, field="/spec/reward/components")


def judge(scorers: tuple[Scorer, ...], answer: Answer) -> tuple[Outcome, ...]:
    """What each scorer says, in order; a reference that is no JSON object is unusable to all."""
    return tuple(_judge(score, answer) for score in scorers)


def _judge(score: Scorer, answer: Answer) -> Outcome:
    """With a reference of its own: what a function does to it, no other scorer sees."""
    try:
        reference = msgspec.json.decode(answer.reference, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return Unusable(f"the reference is not a JSON object: {error}")
    return score(answer, reference)


def guarded(score: Scorer) -> Scorer:
    """`score`, which raises nothing any more."""

    def guarded(answer: Answer, reference: Reference) -> Outcome:
        try:
            outcome = score(answer, reference)
        except MemoryError:
            return Worth(0.0, fault="memory")
        except (OSError, Temporary) as error:
            return Broken(type(error).__name__, _line(error))
        except BaseException as error:  # noqa: BLE001 - a user's function may raise all
            return Unusable(_line(error))
        if isinstance(outcome, Worth) and not math.isfinite(outcome.value):
            return Unusable(f"the score is {outcome.value}, not a finite number")
        return outcome

    return guarded


def _function(component: FunctionReward) -> Scorer:
    function = resolve(component.entry_point)
    looks = _takes(function, "transcript")

    def score(answer: Answer, reference: Reference) -> Outcome:
        more = {"transcript": answer.conversation} if looks else {}
        value = function(
            prompt=answer.prompt, response=answer.response, reference=reference, **more
        )
        if not isinstance(value, Real):  # numpy's scalars too, of any width
            return Unusable(f"{component.entry_point} returned {type(value).__name__}, no number")
        return Worth(float(value))

    return score


def _takes(function: Any, name: str) -> bool:
    """Whether it has a parameter of that name; what does not tell has none."""
    try:
        return name in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def resolve(entry_point: str, *, field: str = "/spec/reward/components") -> Any:
    """The function that `module:function` names; raises Refused where there is none."""
    module, _, name = entry_point.partition(":")
    try:
        function = getattr(import_module(module), name)
    except BaseException as error:  # noqa: BLE001 - importing runs the user's code
        detail = f"cannot load {entry_point}: {_line(error)}"
        raise Refused(detail, field=field) from None
    if not callable(function):
        raise Refused(f"{entry_point} is not a function", field=field)
    return function


def _line(error: BaseException) -> str:
    """Type and message; safe even where the exception cannot say it, or says half a surrogate pair."""
    said = traceback.format_exception_only(error)[-1].strip()[:_DETAIL]
    return said.encode("utf-8", "backslashreplace").decode()
