"""What people read of a role that ended."""

from __future__ import annotations

from ebbtide.objects import Key
from ebbtide.testing.jobs import a_job
from tests.unit.operator.worlds import running

ENDED = '{"at":"t","level":"error","event":"process ended","why":"the engine broke: no GPU"}'


def test_the_message_of_a_failed_job_is_a_sentence_and_its_last_failure_keeps_the_lines() -> None:
    world = running(a_job(backoffLimit=0))
    name = world.kill("decode", code=1)
    tail = f'{{"at":"t","level":"info","event":"process started","settings":{{}}}}\n{ENDED}'
    world.patch_status(Key("Pod", "default", name), {"message": tail})
    world.settle()
    condition, kept = world.own.condition("Failed"), world.own.last_failure
    assert condition is not None
    assert condition.message.endswith(f"{name}: Error (exit code 1): the engine broke: no GPU")
    assert kept is not None
    assert kept.message == tail
