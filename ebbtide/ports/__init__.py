"""What the services need from the world, as protocols; adapters and fakes implement them.

Every call that waits takes a deadline or is bounded by its caller with `asyncio.timeout`.
Each port has a fake in `ebbtide.testing` and one contract test that runs on fake and real.
"""

from ebbtide.ports.cluster import (
    Change,
    Cluster,
    Meta,
    Owner,
    Resource,
)
from ebbtide.ports.engine import (
    Admission,
    Engine,
    EngineCaps,
    EngineCut,
    EngineEvent,
    EngineFailed,
    EngineFinished,
    Loaded,
    NewTokens,
    Resumed,
)
from ebbtide.ports.reviews import Ask, Person, Reviews, Trials
from ebbtide.ports.stores import (
    Blobs,
    Bus,
    Clock,
    Consumer,
    Delivery,
    FactMessage,
    Handler,
    Hot,
    Stored,
)
from ebbtide.ports.transfer import (
    Expired,
    Imported,
    KvData,
    Miss,
    Transfer,
)

__all__ = [
    "Admission",
    "Ask",
    "Blobs",
    "Bus",
    "Change",
    "Clock",
    "Cluster",
    "Consumer",
    "Delivery",
    "Engine",
    "EngineCaps",
    "EngineCut",
    "EngineEvent",
    "EngineFailed",
    "EngineFinished",
    "Expired",
    "FactMessage",
    "Handler",
    "Hot",
    "Imported",
    "KvData",
    "Loaded",
    "Meta",
    "Miss",
    "NewTokens",
    "Owner",
    "Person",
    "Resource",
    "Resumed",
    "Reviews",
    "Stored",
    "Transfer",
    "Trials",
]
