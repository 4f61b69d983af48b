"""What a planner process uses."""

from __future__ import annotations

from dataclasses import dataclass

from ebbtide.data.outcome import Prepared
from ebbtide.ports import Blobs, Bus, Clock, Cluster
from ebbtide.spec import RLHFJobSpec
from services.planner.settings import PlannerSettings


@dataclass(frozen=True, kw_only=True)
class World:
    """`cluster` is None where nobody reads the job's status. `writer`: 16 random bytes.

    `prepared`: the data, where it was prepared beforehand; None: prepare it.
    """

    settings: PlannerSettings
    spec: RLHFJobSpec
    blobs: Blobs
    bus: Bus
    cluster: Cluster | None
    clock: Clock
    writer: bytes
    prepared: Prepared | None = None
