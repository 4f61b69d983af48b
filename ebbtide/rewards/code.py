"""Programs as answers: run in a sandbox, worth what their tests say."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from ebbtide.rewards.outcomes import Answer, Outcome, Reference, Scorer, Unusable, Worth
from ebbtide.rewards.rules import FORMAT, finder
from ebbtide.sandbox.cell import Cell
from ebbtide.sandbox.trial import Asserts, Limits, Prints, Test, run
from ebbtide.spec import CodeReward


def code(component: CodeReward, cell: Cell) -> Scorer:
    """The scorer of a program. Raises Temporary where the cell cannot be started."""
    find, limits = finder(component.extract), limits_of(component)

    def score(answer: Answer, reference: Reference) -> Outcome:
        program = find(answer.response)
        if program is None:
            return FORMAT
        tests = read(reference.get(component.tests_field))
        if isinstance(tests, Unusable):
            return tests
        results = run(program, tests, limits=limits, cell=cell)
        if results is None:
            return Worth(0.0, fault="crash")
        share = sum(result.passed for result in results) / len(results)
        value = share if component.score == "share" else float(share == 1)
        return Worth(value, next((r.fault for r in results if r.fault), ""))

    return score


def limits_of(component: CodeReward) -> Limits:
    """The component's limits in bytes and seconds."""
    return Limits(
        cpu_seconds=component.cpu_seconds,
        test_seconds=component.test_seconds,
        wall_seconds=component.wall_seconds,
        memory_bytes=component.memory_mib << 20,
        processes=component.processes,
        file_bytes=component.file_mib << 20,
        output_bytes=component.output_kib << 10,
    )


def read(value: Any) -> tuple[Test, ...] | Unusable:
    """Tests from a row's field: one or a list of Python texts and {stdin, stdout} objects."""
    items = value if isinstance(value, list) else [value]
    found = [_test(item) for item in items]
    for number, test in enumerate(found):
        if isinstance(test, str):
            return Unusable(f"test {number} of the reference: {test}")
    tests = tuple(test for test in found if not isinstance(test, str))
    return tests or Unusable("the reference has no test")


def _test(item: Any) -> Test | str:
    """The test, or why it is none."""
    match item:
        case str():
            return _compiled(item) or Asserts(item)
        case {"stdin": str(given), "stdout": str(wanted)} if len(item) == 2:
            return Prints(given, wanted)
        case _:
            return "it is neither Python code nor an object with stdin and stdout"


@lru_cache(maxsize=4096)
def _compiled(text: str) -> str:
    """Why the text is no program, or nothing."""
    try:
        compile(text, "test", "exec")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        return f"it does not compile: {error}"
    return ""
