"""Steps as the ledger tells them, played in simulated time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ebbtide import ledger, paths
from ebbtide.reports import StepReport
from ebbtide.wire import Accepted, Committed, Dispatched, StepOpened, StepPlan
from services.planner.core.planning.profile import Profile
from services.planner.simulate.answers import Batch
from services.planner.simulate.machine import Table
from services.planner.simulate.rollout import Layout, Seat, World

Key = tuple[int, int]
"""Group and index of a sample."""


@dataclass
class Step:
    """What a step's samples became: `handed` in order, with the actor; `lengths` of answers."""

    plan: StepPlan
    handed: dict[Key, str] = field(default_factory=dict)
    lengths: dict[Key, int] = field(default_factory=dict)


class Compared(NamedTuple):
    """Seconds of one step: the whole, and decoding alone."""

    step: int
    predicted: float
    realised: float
    predicted_decode: float
    decode: float

    @property
    def error(self) -> float:
        """|predicted / realised - 1|."""
        return abs(self.predicted / self.realised - 1)


def compared(
    blobs: Path,
    uid: str,
    reports: Sequence[StepReport],
    profile: Profile,
    *,
    slots: int,
    warmup: int,
) -> list[Compared]:
    """Every step after the first `warmup`, the last of which tells what comes beside decoding.

    (The very first one waits for what is begun once.)
    """
    known = {report.step: report for report in reports}
    warm = reports[warmup - 1]
    beside = warm.seconds - warm.phases.decode
    found: list[Compared] = []
    for one in steps(blobs, uid):
        report = known.get(one.plan.step)
        if report is None or one.plan.step < warmup:
            continue
        decode = played(one, profile, slots=slots)
        said = (decode + beside, report.seconds, decode, report.phases.decode)
        found.append(Compared(one.plan.step, *said))
    return found


def steps(blobs: Path, uid: str) -> Iterator[Step]:
    """The committed steps, from the segments of the job's ledger."""
    step: Step | None = None
    slot = 0
    while (file := blobs / paths.segment(uid, slot)).exists():
        for record in ledger.decode_segment(file.read_bytes()).records:
            match record:
                case StepOpened(plan):
                    step = Step(plan)
                case Dispatched(key, _, actor) if step is not None:
                    step.handed[key.group, key.index] = actor
                case Accepted(key=key, n_tokens=tokens) if step is not None:
                    step.lengths[key.group, key.index] = tokens
                case Committed() if step is not None:
                    yield step
        slot += 1


def played(step: Step, profile: Profile, *, slots: int) -> float:
    """Seconds of decoding on the profile's curve: the same answers on the same actors."""
    keys = [key for key in step.handed if step.lengths.get(key)]
    prompt = {group.group: group.prompt_tokens for group in step.plan.groups}
    place = {name: at for at, name in enumerate(dict.fromkeys(step.handed.values()))}
    group_of = np.unique([group for group, _ in keys], return_inverse=True)[1]
    batch = Batch(
        number=step.plan.step,
        prompts=group_of,
        group=group_of,
        lengths=np.asarray([step.lengths[key] for key in keys]),
        cut=np.zeros(len(keys), bool),
        prompt_tokens=np.asarray([prompt[group] for group, _ in keys]),
        done=np.zeros(len(keys), np.int64),
    )
    actor_of = np.asarray([place[step.handed[key]] for key in keys])
    layout = Layout(actor_of, [Seat(0)] * len(place), np.arange(len(keys)))
    world = World(
        batch, layout, [Table(profile, slots)], cache="engine", pause=0.0, hear=lambda _: None
    )
    return world.run().seconds
