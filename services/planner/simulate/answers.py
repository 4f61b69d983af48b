"""Whose answers a step decodes: one trace per seed, the same for every policy (pure)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ebbtide.errors import Refused
from services.planner.simulate.lengths import Shares, Trace, draw
from services.planner.simulate.scenario import MAX_TOKENS, Lengths, Work

Ints = npt.NDArray[np.integer[Any]]
Floats = npt.NDArray[np.floating[Any]]

MORE = 2
"""Samples are drawn for so many times a group, for policies that ask for more than they need."""


class Row(NamedTuple):
    """One line of a trace file. `blocks`: ids of the prompt's blocks, equal ids = equal prefix."""

    prompt_tokens: int
    length: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Batch:
    """What one step decodes: n samples of m groups.

    prompts, group, lengths, prompt_tokens (n,); done (n,): tokens written in an earlier step.
    cut (n,): whether the limit ends it. `number` counts steps.
    """

    number: int
    prompts: Ints
    group: Ints
    lengths: Ints
    cut: npt.NDArray[np.bool_]
    prompt_tokens: Ints
    done: Ints

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def groups(self) -> int:
        """M."""
        return int(self.group.max(initial=-1)) + 1


def make_trace(lengths: Lengths, work: Work, rows: Sequence[Row], seed: int) -> Trace:
    """The answers of all epochs; `rows` are those of the file, if there is one."""
    if lengths.file is not None:
        return _from_rows(check_rows(rows, lengths.file), lengths, work, seed)
    assert lengths.median is not None, "a scenario has a file or a median"
    assert lengths.p90 is not None, "a median comes with a P90"
    return draw(
        seed=seed,
        prompts=work.prompts,
        epochs=work.epochs,
        samples=MORE * work.group_size,
        limit=work.limit,
        median=lengths.median,
        p90=lengths.p90,
        trend=lengths.trend,
        shares=Shares().with_chance(lengths.chance),
    )


def check_rows(rows: Sequence[Row], where: str) -> Sequence[Row]:
    """The rows, if every one is an answer that could be; raises Refused with its number."""
    if not rows:
        raise Refused(f"{where} has no rows", field="/lengths/file")
    for number, row in enumerate(rows, start=1):
        for name, value in (("output", row.length), ("prompt", row.prompt_tokens)):
            if not 1 <= value <= MAX_TOKENS:
                raise Refused(
                    f"{where}, row {number}: {name} length {value} is not within 1..{MAX_TOKENS}",
                    field="/lengths/file",
                )
    return rows


def _from_rows(rows: Sequence[Row], lengths: Lengths, work: Work, seed: int) -> Trace:
    """Prompts drawn from the file without repetition while it has enough.

    A row's length is the middle of its prompt's answers; `chance` of the file's log-variance is
    added anew for every sample, as no serving trace says how a prompt's answers vary.
    """
    random = np.random.default_rng(seed)
    picked = random.choice(len(rows), work.prompts, replace=len(rows) < work.prompts)
    middles = np.log([rows[i].length for i in picked])
    deviation = float(np.log([row.length for row in rows]).std()) * lengths.chance**0.5
    shape = (work.epochs, work.prompts, MORE * work.group_size)
    logs = middles[None, :, None] + deviation * random.standard_normal(shape)
    logs = logs + lengths.trend * np.arange(work.epochs)[:, None, None]
    uncut = np.maximum(np.rint(np.exp(np.minimum(logs, np.log(MAX_TOKENS)))), 1).astype(np.int64)
    return Trace(
        uncut,
        np.minimum(uncut, work.limit).astype(np.int32),
        uncut > work.limit,
        np.asarray([rows[i].prompt_tokens for i in picked], np.int32),
        tuple(f"row-{i}-{n}" for n, i in enumerate(picked)),
        ("",) * work.prompts,
    )


def blocks_of(trace: Trace, rows: Sequence[Row]) -> list[tuple[int, ...]]:
    """Blocks of each prompt: those of its row; none where lengths were drawn."""
    if not rows:
        return [()] * len(trace.prompt_ids)
    return [rows[int(name.split("-")[1])].blocks for name in trace.prompt_ids]


class Order:
    """Which prompts come when: each epoch goes over all of them in an order of its own."""

    def __init__(self, trace: Trace, work: Work, seed: int) -> None:
        self._trace, self._work = trace, work
        random = np.random.default_rng((seed, 7))
        orders = [random.permutation(work.prompts) for _ in range(work.epochs)]
        self._issued = [(epoch, int(p)) for epoch, order in enumerate(orders) for p in order]

    @property
    def steps(self) -> int:
        """In all epochs."""
        return len(self._issued) // self._work.prompts_per_step

    def issued(self, start: int, count: int) -> list[tuple[int, int]]:
        """(epoch, prompt) of so many from `start` on; fewer at the end."""
        return self._issued[start : start + count]

    def batch(self, step: int) -> Batch:
        """Of an ordinary step."""
        size = self._work.prompts_per_step
        return self.of(step, self.issued(step * size, size), self._work.group_size)

    def of(self, step: int, issued: Iterable[tuple[int, int]], samples: int) -> Batch:
        """The first `samples` answers of each of these prompts."""
        pairs = list(issued)
        epochs, prompts = np.asarray(pairs, np.intp).reshape(-1, 2).T
        t = self._trace
        n = len(pairs) * samples
        return Batch(
            number=step,
            prompts=np.repeat(prompts, samples),
            group=np.repeat(np.arange(len(pairs)), samples),
            lengths=t.lengths[epochs, prompts, :samples].ravel(),
            cut=t.censored[epochs, prompts, :samples].ravel(),
            prompt_tokens=np.repeat(t.prompt_tokens[prompts], samples),
            done=np.zeros(n, np.int32),
        )

    def __iter__(self) -> Iterator[Batch]:
        return (self.batch(step) for step in range(self.steps))


def with_done(batch: Batch, done: Ints) -> Batch:
    """The same with these tokens written already."""
    return replace(batch, done=np.asarray(done))
