"""Only logs and samples of jobs that are over go, and only when their time has come."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from ebbtide import labels, paths
from ebbtide.ports import Stored
from ebbtide.testing.jobs import a_job
from ebbtide_operator.core.retention import Ended, Held, Limit, Limits, ending, next_look, step
from tests.unit.operator.stage import JOB, Platform, play

TIMES = st.integers(0, 100).map(float)
PLACES = ("logs/decode/p/", "rollouts/00000001/", "ledger/", "attempts/0001/", "usage/", "steps/")


def objects(uid: str) -> st.SearchStrategy[tuple[Stored, ...]]:
    """Of any kind, of this job or of another: what a careless caller might hand over."""
    names = st.tuples(st.sampled_from((uid, "other")), st.sampled_from(PLACES), st.integers(0, 9))
    path = names.map(lambda name: f"jobs/{name[0]}/{name[1]}{name[2]}")
    return st.lists(st.builds(Stored, path, st.integers(0, 50), TIMES), max_size=8).map(tuple)


HELD = st.builds(
    Held,
    ended=st.builds(Ended, st.just("u"), st.just("default"), st.just("job"), TIMES, st.booleans()),
    running=st.booleans(),
    logs=objects("u"),
    samples=objects("u"),
)
LIMIT = st.builds(Limit, st.integers(0, 60).map(float), st.integers(0, 120))
LIMITS = st.builds(Limits, LIMIT, LIMIT, st.integers(1, 40).map(float))


@given(st.lists(HELD, max_size=3), TIMES, LIMITS)
def test_nothing_young_nothing_of_a_running_job_and_nothing_protected_goes(
    jobs: list[Held], now: float, limits: Limits
) -> None:
    for removal in step(jobs, now, limits):
        assert not removal.ended.kept
        assert any(job.ended == removal.ended and not job.running for job in jobs)
        for one in (*removal.logs, *removal.samples):
            assert now - max(one.at, removal.ended.at) >= limits.grace
            assert one.path.startswith(("jobs/u/logs/", "jobs/u/rollouts/"))


@given(HELD, TIMES, LIMITS)
def test_what_is_too_old_goes_and_of_too_much_the_oldest(
    job: Held, now: float, limits: Limits
) -> None:
    if job.protected:
        return
    gone = {one for removal in step([job], now, limits) for one in removal.logs}
    mine = [one for one in job.logs if one.path.startswith("jobs/u/logs/")]
    due = [one for one in mine if now - max(one.at, job.ended.at) >= limits.grace]
    left = [one for one in mine if one not in gone]
    if limits.logs.seconds:
        assert all(
            now - max(one.at, job.ended.at) < limits.logs.seconds for one in due if one in left
        )
    if limits.logs.bytes and sum(one.size for one in left) > limits.logs.bytes:
        assert not [one for one in due if one in left]
    assert all(one.at <= other.at for one in gone for other in left if other in due)


@given(HELD, TIMES, LIMITS)
def test_before_the_next_look_is_due_a_look_would_find_nothing(
    job: Held, now: float, limits: Limits
) -> None:
    if now < next_look(job, limits):
        assert step([job], now, limits) == ()


def test_a_job_that_may_still_run_is_not_noted() -> None:
    assert ending(a_job()) is None


# --- the operator -------------------------------------------------------------------------------


async def finish(platform: Platform) -> str:
    """Play a job to its end; returns its uid."""
    job = await platform.cluster.create(a_job())
    await platform.until(lambda: platform.holds("Running"))
    await platform.cluster.patch(*JOB, {"metadata": {"annotations": {labels.CANCEL: "now"}}})
    await platform.until(lambda: platform.holds("Failed") and not platform.pods())
    return job.metadata.uid


async def store(platform: Platform, uid: str) -> set[str]:
    """One object of each kind; returns the paths that must stay."""
    goes = {paths.log_part(uid, "decode", "p", 0), f"{paths.samples(uid)}00000001/x.msgpack"}
    stays = {paths.segment(uid, 0), paths.manifest(uid, 1, 2), paths.step_report(uid, 1)}
    for path in (*goes, *stays):
        await platform.blobs.put(path, b"x" * 10)
    return stays


OLD = 300.0
SHORT = Limits(logs=Limit(OLD), samples=Limit(OLD), grace=60.0)
"""A clock that runs for days would renew the lease a million times."""


def test_logs_and_samples_go_after_their_days_and_people_are_told() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator(limits=SHORT) as controller:
            uid = await finish(platform)
            stays = await store(platform, uid)
            await platform.clock.sleep(OLD - 30)
            await controller.retention.sweep()
            assert len(await platform.blobs.list(f"jobs/{uid}/logs")) == 1
            await platform.clock.sleep(60.0)
            await controller.retention.sweep()
            left = set(await platform.blobs.list(f"jobs/{uid}"))
            assert stays <= left
            assert not [path for path in left if "/logs/" in path or "/rollouts/" in path]
            assert platform.events()["Reclaimed"] == 1

    play(scene)


def test_a_marked_job_keeps_everything_and_a_deleted_one_its_mark() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator(limits=SHORT) as controller:
            uid = await finish(platform)
            await store(platform, uid)
            before = set(platform.blobs.objects)
            await platform.cluster.patch(*JOB, {"metadata": {"annotations": {labels.KEEP: ""}}})
            await platform.cluster.delete(*JOB)
            await platform.clock.sleep(2 * OLD)
            await controller.retention.sweep()
            assert before <= set(platform.blobs.objects)
            assert msgspec.json.decode(platform.blobs.objects[paths.ended(uid)])["kept"]

    play(scene)


def test_a_deleted_job_is_noted_before_its_object_goes() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator(limits=SHORT) as controller:
            job = await platform.cluster.create(a_job())
            await platform.until(lambda: platform.holds("Running"))
            await platform.cluster.delete(*JOB)
            await platform.until(lambda: not platform.pods() and not platform.status())
            await store(platform, job.metadata.uid)
            await platform.clock.sleep(OLD + 1)
            await controller.retention.sweep()
            assert not await platform.blobs.list(paths.logs(job.metadata.uid))

    play(scene)


def test_a_running_job_loses_nothing_however_old() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator(limits=SHORT) as controller:
            job = await platform.cluster.create(a_job())
            await platform.until(lambda: platform.holds("Running"))
            await store(platform, job.metadata.uid)
            word = Ended(job.metadata.uid, "default", "job", 0.0)
            await platform.blobs.put(paths.ended(word.job_uid), msgspec.json.encode(word))
            await platform.clock.sleep(2 * OLD)
            await controller.retention.sweep()
            assert await platform.blobs.list(paths.logs(job.metadata.uid))
            assert await platform.blobs.list(paths.samples(job.metadata.uid))

    play(scene)


# --- last lines ---------------------------------------------------------------------------------


def test_the_last_lines_of_a_killed_pod_are_kept_and_those_of_others_are_not() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator():
            job = await platform.cluster.create(a_job())
            await platform.until(lambda: platform.holds("Running"))
            for pod in ("job-decode-0", "job-decode-1"):
                platform.cluster.logs_of[pod] = [b"working", b"Segmentation fault"]
            await platform.end("job-decode-0", signal=11)
            await platform.end("job-decode-1", code=0)
            await platform.clock.sleep(30.0)
            found = await platform.blobs.list(paths.logs(job.metadata.uid))
            assert found == [paths.log_tail(job.metadata.uid, "decode", "job-decode-0")]
            assert await platform.blobs.get(found[0]) == b"working\nSegmentation fault"

    play(scene)
