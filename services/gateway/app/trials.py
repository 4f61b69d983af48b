"""Tries a job's pod templates out before the job is taken."""

from __future__ import annotations

from ebbtide.errors import Refused
from ebbtide.ports import Trials
from ebbtide.spec import RLHFJob
from ebbtide.spec.check import Fault
from services.gateway.core.trial import trials as pods


async def refusals(job: RLHFJob, *, trials: Trials, namespace: str) -> tuple[Fault, ...]:
    """Why pods of the job would not be made, template by template; raises Temporary.

    A quota that is used up is none: it may well be free when the job's turn has come.
    """
    faults: list[Fault] = []
    for pointer, pod in pods(job):
        try:
            await trials.pod(namespace, pod)
        except Refused as error:
            faults.append(Fault(f"{pointer}{error.field}", error.detail))
    return tuple(faults)
