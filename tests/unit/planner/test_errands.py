"""What becomes of an errand that cannot be done: the core hears of it, and waits for nothing."""

from __future__ import annotations

import io
from typing import Any

import msgspec
import pytest

from ebbtide import logs
from ebbtide.data.chunks import encode_rows
from ebbtide.spec import RLHFJobSpec
from ebbtide.streams import MAX_MESSAGE_BYTES
from ebbtide.testing.blobs import FakeBlobs
from ebbtide.testing.bus import FakeBus
from ebbtide.testing.clock import VirtualClock, run_virtual
from ebbtide.testing.jobs import a_spec
from ebbtide.wire import Dispatch, Fence, PromptRef, Ref, Settle
from services.planner.app.errands import Errands
from services.planner.app.world import World
from services.planner.core.effects import Effect, LoadPrompts, Send
from services.planner.core.events import Event, PromptsLost, Replied
from services.planner.settings import PlannerSettings
from tests.unit.planner.builders import NO_EVAL, UID, a_config, some_data
from tests.unit.planner.world import World as Model

FENCE = Fence(1, 1)


def told(effect: Effect, blobs: FakeBlobs | None = None) -> list[Event]:
    """What the core hears of `effect`."""
    heard: list[Event] = []

    async def scenario() -> None:
        clock = VirtualClock()
        world = World(
            settings=PlannerSettings(blobs_url="memory:///", job="job", job_uid=UID),
            spec=RLHFJobSpec.model_validate_json(msgspec.json.encode(a_spec())),
            blobs=blobs or FakeBlobs(),
            bus=FakeBus(clock=clock),
            cluster=None,
            clock=clock,
            writer=bytes(16),
        )
        log = logs.setup("error", stream=io.StringIO())
        errands = Errands(world=world, fence=FENCE, post=heard.append, log=log)
        work: Any = errands.work(effect)
        await work

    run_virtual(scenario())
    return heard


def test_a_command_that_the_broker_does_not_take_counts_as_unanswered() -> None:
    many = (Dispatch(1, 1, 0),) * (MAX_MESSAGE_BYTES // 16)
    assert told(Send(7, "actor", Settle(FENCE, many), 3.0)) == [Replied(7, None)]


@pytest.mark.parametrize("damaged", [True, False])
def test_prompts_that_are_gone_or_damaged_are_told_to_be_lost(*, damaged: bool) -> None:
    blobs, data = FakeBlobs(), encode_rows(())
    if damaged:
        blobs.objects["chunk"] = data
    ref = PromptRef(Ref("chunk", "another digest", len(data)), 0)
    [lost] = told(LoadPrompts(0, (ref,), ()), blobs)
    assert isinstance(lost, PromptsLost)
    assert "chunk" in lost.why


def test_a_job_whose_prompts_are_lost_fails_and_says_so() -> None:
    world = Model(a_config(work=NO_EVAL), some_data())
    world.feed(world.seat, PromptsLost("no blob chunk"))
    world.perform(world.seat)
    assert world.outcome is not None
    assert (world.outcome.outcome, world.outcome.reason) == ("failed", "DataLost")
    assert "no blob chunk" in world.outcome.message
