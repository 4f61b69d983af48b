"""The engine is made beside the loop that answers probes."""

from __future__ import annotations

import asyncio
import threading

from ebbtide.ports import Clock, Engine
from ebbtide.spec import RLHFJobSpec
from ebbtide.testing.clock import VirtualClock
from ebbtide.testing.jobs import a_spec
from services.decode.engine import make_engine, start_engine

SPEC = RLHFJobSpec.model_validate(a_spec(decode={"engine": "emulated"}), strict=False)


async def test_probes_are_answered_while_the_engine_is_being_made() -> None:
    probed = threading.Event()

    def slowly(spec: RLHFJobSpec, *, clock: Clock) -> Engine:
        assert probed.wait(5.0), "nothing else was done meanwhile"
        return make_engine(spec, clock=clock)

    asyncio.get_running_loop().call_soon(probed.set)
    engine = await start_engine(SPEC, clock=VirtualClock(), make=slowly)
    await engine.close()
