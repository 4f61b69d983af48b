"""The built-in rules: exact, numeric, regex, math, reasoning_gym.

The judged text is the whole response without surrounding space, or what group 1 of `extract`
holds in its last match. Where nothing matches, the answer has the fault "format" and is worth 0.
"""

from __future__ import annotations

import logging
import math
import re
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from importlib import import_module
from typing import Any

from ebbtide import gym
from ebbtide.rewards.outcomes import Answer, Outcome, Reference, Scorer, Unusable, Worth
from ebbtide.spec import RuleReward

_NUMBER = re.compile(
    r"(?:(?<![\w.)])[-+])?(?:\d+(?:,\d{3})*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?", re.ASCII
)
FORMAT = Worth(0.0, fault="format")
"""Nothing to judge was found."""

Rule = Callable[[str, Answer, Reference], Outcome]
"""Judges the text that was found in the answer."""


def rule(component: RuleReward) -> Scorer:
    """The scorer of a built-in rule, with extraction before and the threshold after it."""
    judge = _RULES[component.type](component)
    find = finder(component.extract)

    def score(answer: Answer, reference: Reference) -> Outcome:
        text = find(answer.response)
        if text is None:
            return FORMAT
        return _stepped(judge(text, answer, reference), component.threshold)

    return score


def finder(extract: str | None) -> Callable[[str], str | None]:
    """From a response to the text that is judged; None where `extract` matches nothing."""
    if extract is None:
        return str.strip
    pattern = re.compile(extract, re.DOTALL)

    def find(response: str) -> str | None:
        last = deque(pattern.finditer(response), maxlen=1)
        return (last[0].group(1) or "").strip() if last else None

    return find


def _stepped(outcome: Outcome, threshold: float | None) -> Outcome:
    if threshold is None or not isinstance(outcome, Worth):
        return outcome
    return Worth(float(outcome.value >= threshold), outcome.fault)


def _wanted(component: RuleReward, reference: Reference) -> str | Unusable:
    """The reference answer as text."""
    value = reference.get(component.answer_field)
    if isinstance(value, str | int | float):
        return str(value).strip()
    have = ", ".join(sorted(reference)) or "nothing"
    return Unusable(f"the reference has no answer in {component.answer_field!r}; it has {have}")


def _exact(component: RuleReward) -> Rule:
    def judge(text: str, _: Answer, reference: Reference) -> Outcome:
        wanted = _wanted(component, reference)
        return wanted if isinstance(wanted, Unusable) else Worth(float(text == wanted))

    return judge


def _numeric(component: RuleReward) -> Rule:
    def judge(text: str, _: Answer, reference: Reference) -> Outcome:
        wanted = _wanted(component, reference)
        if isinstance(wanted, Unusable):
            return wanted
        target, found = last_number(wanted), last_number(text)
        if target is None:
            return Unusable(f"the reference answer {wanted[:80]!r} is not a number")
        return FORMAT if found is None else Worth(float(abs(found - target) <= component.tolerance))

    return judge


def last_number(text: str) -> float | None:
    """The last finite decimal number in `text` (1,234.5 and 6e3 included), or None."""
    for found in reversed(_NUMBER.findall(text)):
        number = float(found.replace(",", ""))
        if math.isfinite(number):
            return number
    return None


def _regex(component: RuleReward) -> Rule:
    pattern = re.compile(component.pattern or "", re.DOTALL)

    def judge(text: str, _: Answer, __: Reference) -> Outcome:
        return Worth(float(pattern.search(text) is not None))

    return judge


def _math(component: RuleReward) -> Rule:
    library = import_module("math_verify")
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that we keep the time

    @lru_cache(maxsize=1024)
    def gold(text: str) -> Any:
        bare = not any(mark in text for mark in ("$", r"\(", r"\[", r"\boxed"))
        return library.parse(f"${text}$" if bare else text, parsing_timeout=None)

    def judge(text: str, _: Answer, reference: Reference) -> Outcome:
        wanted = _wanted(component, reference)
        if isinstance(wanted, Unusable):
            return wanted
        if not (target := gold(wanted)):
            return Unusable(f"the reference answer {wanted[:80]!r} is not mathematics")
        if not (found := library.parse(text, parsing_timeout=None)):
            return FORMAT
        equal = library.verify(target, found, timeout_seconds=None, raise_on_error=True)
        return Worth(float(equal))

    return judge


def _reasoning_gym(_: RuleReward) -> Rule:
    find = lru_cache(maxsize=None)(gym.package().get_score_answer_fn)

    def judge(text: str, answer: Answer, reference: Reference) -> Outcome:
        metadata = reference.get("metadata")
        inner = metadata.get("source_dataset") if isinstance(metadata, dict) else None
        return Worth(float(find(inner or answer.task)(text, reference)))

    return judge


_RULES: dict[str, Callable[[RuleReward], Rule]] = {
    "exact": _exact,
    "numeric": _numeric,
    "regex": _regex,
    "math": _math,
    "reasoning_gym": _reasoning_gym,
}
