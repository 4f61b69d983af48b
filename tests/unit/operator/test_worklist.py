"""Every job once, and by one pass at a time."""

import asyncio

import pytest

from ebbtide_operator.worklist import JobQueue

A, B = ("default", "a"), ("default", "b")


@pytest.fixture
def queue() -> JobQueue:
    return JobQueue(now=lambda: 0.0)


async def test_a_job_that_changes_often_waits_once(queue: JobQueue) -> None:
    for job in (A, B, A):
        queue.put(job)
    assert (len(queue), await queue.take(), await queue.take()) == (2, A, B)


async def test_a_job_that_changes_during_its_pass_is_looked_at_again_after_it(
    queue: JobQueue,
) -> None:
    queue.put(A)
    await queue.take()
    queue.put(A)
    queue.put(B)
    assert await queue.take() == B
    queue.done(A, None)
    assert await queue.take() == A


async def test_a_job_is_due_again_by_itself(queue: JobQueue) -> None:
    queue.put(A)
    queue.done(await queue.take(), 0.0)
    assert await asyncio.wait_for(queue.take(), 5.0) == A


async def test_the_longest_pass_is_told() -> None:
    times = iter([3.0, 5.0, 10.0, 11.0])
    queue = JobQueue(now=lambda: next(times))
    for job in (A, B):
        queue.put(job)
        await queue.take()
    assert queue.longest() == 7.0
    for job in (A, B):
        queue.done(job, None)
    assert queue.longest() == 0.0
