"""A job that learns from the batches of another one."""

from __future__ import annotations

from ebbtide.wire import BatchManifest, Frozen, RecordedBatch, decode
from services.planner.core.config import Recorded
from tests.checker.verdict import examine
from tests.unit.planner.builders import a_config, some_data
from tests.unit.planner.world import World


def test_its_batches_are_named_to_the_learner_step_by_step_and_no_actor_is_needed() -> None:
    work = Recorded(uid="other", attempt=3, first=5)
    world = World(a_config(work=work), some_data(eval_rows=0), actors=0)
    world.calm()
    assert world.outcome
    assert world.outcome.outcome == "complete"
    assert examine(world.evidence()).faults() == {}
    places = [r.manifest.path for r in world.records if isinstance(r, Frozen)]
    frozen = [decode(world.blobs[place], BatchManifest) for place in places]
    assert [m.recorded for m in frozen] == [RecordedBatch("other", 3, n) for n in (5, 6)]
    assert [m.rows for m in frozen] == [(), ()]
