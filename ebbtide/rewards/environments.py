"""Environments: what is said to the policy between its turns, as a function of the episode so far.

One is loaded and guarded like a scorer (`ebbtide.rewards.scorers`), and its outcome is a Reply.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable

from ebbtide.rewards.outcomes import Answer, Outcome, Reference, Reply, Scorer, Unusable
from ebbtide.rewards.scorers import guarded, resolve
from ebbtide.spec import EnvironmentSpec

FIELD = "/spec/environment"
LARGEST_REPLY = 1 << 20
"""Characters: more does not leave the worker."""
_CALL = re.compile(r"<calc>([^<]*)(?:</calc>|\Z)")
_NO_TEXT = "the reply is not valid text"
_LONGEST_SUM = 200
_LARGEST_NUMBER = 1e15
_OPERATORS: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}


def environment(spec: EnvironmentSpec) -> Scorer:
    """The job's environment; raises Refused when it cannot be had (a missing function)."""
    if spec.entry_point is None:
        return guarded(calculator)
    return guarded(_function(spec.entry_point))


def _function(entry_point: str) -> Scorer:
    function = resolve(entry_point, field=f"{FIELD}/entryPoint")

    def respond(answer: Answer, reference: Reference) -> Outcome:
        said = function(
            prompt=answer.prompt, transcript=answer.conversation, reference=dict(reference)
        )
        if said is not None and not isinstance(said, str):
            return Unusable(f"{entry_point} returned {type(said).__name__}, neither text nor None")
        if said is not None and len(said) > LARGEST_REPLY:
            return Unusable(f"a reply of {len(said)} characters, more than {LARGEST_REPLY}")
        return Reply(said) if said is None or _is_text(said) else Unusable(_NO_TEXT)

    return respond


def _is_text(said: str) -> bool:
    """Whether it may leave the worker: half of a surrogate pair has no bytes."""
    try:
        said.encode()
    except UnicodeEncodeError:
        return False
    return True


def calculator(answer: Answer, _: Reference) -> Outcome:
    """The result of the last sum of the turn, `<calc>2*(3+4)</calc>`; a turn without one ends it.

    Numbers, + - * / // % and parentheses. What is no sum is answered by what is wrong with it.
    """
    found = _CALL.findall(answer.response)
    return Reply(_result(found[-1]) if found else None)


def _result(text: str) -> str:
    if len(text) > _LONGEST_SUM:
        return f"error: over {_LONGEST_SUM} characters"
    try:
        value = _value(ast.parse(text.strip(), mode="eval").body)
    except ZeroDivisionError:
        return "error: division by zero"
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError):
        return "error: not a sum of numbers"
    whole = float(value).is_integer()
    return f"{int(value)}" if whole else f"{value:.12g}"


def _value(node: ast.expr) -> float:
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            return _bounded(number)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _bounded(_OPERATORS[type(op)](_value(left), _value(right)))
    raise ValueError("no arithmetic")


def _bounded(number: float) -> float:
    if not abs(number) <= _LARGEST_NUMBER:
        raise OverflowError("beyond the largest number")
    return number
