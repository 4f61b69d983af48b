"""CPU seconds of a run with metrics and tracing on, against the same run with both off.

Two stacks run side by side, each with the same job again and again: in one of them every process
counts, sends its spans to a receiver and is scraped as deploy/prometheus/local.yaml says, in the
other nothing counts and nobody looks. The job is the same to the token, and both sides do it at the
same time, so what else the machine does befalls both. Judged is the upper confidence bound of the
mean excess over the pairs, in percent of the CPU seconds of all processes of the stack.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.harness import Measured
from benchmarks.metrics_overhead.figures import Pair, judged, table
from benchmarks.metrics_overhead.receiver import Receiver, receiving
from benchmarks.metrics_overhead.sides import Side, compare, opened

ROUNDS, PAIRS = 2, 4
"""Rounds with new stacks, and counted pairs of jobs in each; a first pair is not counted."""
OFF = {"EBBTIDE_METRICS": "false"}


def measure() -> Measured:
    """Run all rounds; NaN if the side that is on told nothing, or the other one something."""
    pairs: list[Pair] = []
    spans = scrapes = 0
    for number in range(ROUNDS):
        found, receiver = _round(number)
        pairs += found
        spans, scrapes = spans + receiver.spans, scrapes + receiver.scrapes
    columns, rows = table(pairs, spans=spans, scrapes=scrapes)
    return Measured(judged(pairs, spans=spans, scrapes=scrapes), columns, rows)


def _round(number: int) -> tuple[Sequence[Pair], Receiver]:
    """The side that starts first is another one in each round."""
    with ExitStack() as stack, receiving() as receiver:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        wanted = {"on": {"EBBTIDE_OTLP_URL": receiver.url}, "off": OFF}
        sides: dict[str, Side] = {}
        for name in sorted(wanted, reverse=number % 2 == 1):
            sides[name] = stack.enter_context(opened(scratch / name, wanted[name]))
        with receiver.scraping(sides["on"].stack):
            pairs = [compare(sides["on"], sides["off"], turn) for turn in range(PAIRS + 1)]
    return pairs[1:], receiver
