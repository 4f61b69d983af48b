"""The operator's shell over fakes, on virtual time: queue, cache, lease, order of writes."""

from typing import NoReturn

import msgspec
import pytest

from ebbtide import paths, usage
from ebbtide.errors import Temporary
from ebbtide.testing.jobs import a_job
from ebbtide.tracing import StepTrace
from ebbtide_operator.cache import Cache
from ebbtide_operator.core.look import Observed
from ebbtide_operator.lease import Lease, Lost
from tests.unit.operator.stage import JOB, Platform, play

ALL = [
    "job-decode-0",
    "job-decode-1",
    "job-learner-1-0",
    "job-learner-1-1",
    "job-planner-1-0",
    "job-reward-0",
]


def test_a_job_is_brought_up_and_people_are_told() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator():
            await platform.cluster.create(a_job())
            await platform.until(lambda: platform.holds("Running"))
            assert platform.pods() == ALL
            assert platform.events()["RolesReady"] == 1

    play(scene)


def test_each_pods_start_is_told_once_in_the_trace_of_the_open_step() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator():
            job = await platform.cluster.create(a_job())
            await platform.until(lambda: platform.holds("Running"))
            await platform.clock.sleep(60.0)
        told = platform.spans.told
        assert sorted(span.attributes["ebbtide.pod"] for span in told) == ALL
        assert {span.trace for span in told} == {StepTrace(job.metadata.uid, 1, 0).id}
        assert {span.role for span in told} == {"planner", "learner", "decode", "reward"}
        assert all(span.end >= span.start for span in told)

    play(scene)


def test_the_same_event_counts_up() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator():
            await platform.cluster.create(a_job())
            for name in ("job-planner-1-0", "job-planner-1-1"):
                await platform.until(lambda: platform.holds("Running"))
                await platform.end(name, signal=9)
                await platform.until(lambda: not platform.holds("Running"))
            await platform.until(lambda: platform.holds("Running"))
            assert platform.events()["RolesReady"] == 3

    play(scene)


def test_held_time_is_written_while_a_pod_lives_and_closed_when_it_ends() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator():
            job = await platform.cluster.create(a_job())
            await platform.until(lambda: platform.holds("Running"))
            pod = await platform.cluster.get("Pod", "default", "job-decode-0")
            path = paths.usage(job.metadata.uid, "job-decode-0", pod.metadata.uid)
            await platform.clock.sleep(60.0)
            living = usage.decode(platform.blobs.objects[path])
            assert living.ended_at is None
            assert living.seconds > 45.0
            await platform.end("job-decode-0", signal=9)
            await platform.until(lambda: "job-decode-0" not in platform.pods())
            assert usage.decode(platform.blobs.objects[path]).ended_at is not None

    play(scene)


def test_a_deleted_job_leaves_nothing_but_its_held_time_and_that_it_is_over() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator() as controller:
            job = await platform.cluster.create(a_job())
            await platform.until(lambda: platform.holds("Running"))
            await platform.cluster.delete(*JOB)
            await platform.until(lambda: not platform.pods() and not platform.status())
            await platform.clock.sleep(5.0)
            assert controller.cache.jobs() == []
            assert {key.kind for key in platform.cluster.table.objects} == {"Lease"}
            uid = job.metadata.uid
            held = await platform.blobs.list(paths.usages(uid))
            assert set(platform.blobs.objects) == {*held, paths.ended(uid)}
            ends = [usage.decode(platform.blobs.objects[path]).ended_at for path in held]
            assert len(ends) == 6
            assert None not in ends

    play(scene)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("dies_at", range(1, 24))
def test_an_operator_that_dies_at_any_write_is_continued_by_the_next(
    dies_at: int, late: bool
) -> None:
    async def scene(platform: Platform) -> None:
        await platform.kubelet.create(a_job())
        platform.cluster.dies_at, platform.cluster.late = dies_at, late
        async with platform.operator():
            await platform.clock.sleep(20.0)
        platform.cluster.dies_at = -1
        async with platform.operator():
            await platform.until(lambda: platform.holds("Running"))
            await platform.clock.sleep(20.0)
            found = platform.pods()
            # Numbers of actors and scorers may have been skipped; nothing else may differ.
            assert [n for n in found if "-1-" in n] == [n for n in ALL if "-1-" in n]
            assert [n.rsplit("-", 1)[0] for n in found] == [n.rsplit("-", 1)[0] for n in ALL]
            assert platform.status()["attempt"] == 1
            assert platform.status().get("restarts", 0) == 0

    play(scene)


def test_only_the_holder_of_the_lease_writes() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator():
            await platform.cluster.create(a_job())
            await platform.until(lambda: platform.holds("Running"))
            async with platform.operator() as second:
                await platform.clock.sleep(60.0)
                assert not second.cache.heard
        async with platform.operator() as third:
            await platform.until(lambda: third.cache.heard, seconds=10.0)

    play(scene)


def test_an_operator_without_its_lease_writes_nothing() -> None:
    async def scene(platform: Platform) -> None:
        lease = Lease(
            cluster=platform.cluster,
            clock=platform.clock,
            holder="a",
            seconds=6.0,
            namespace="default",
        )
        await lease.acquire()
        lease.check()
        await platform.clock.sleep(4.1)  # not renewed for longer than two thirds of its time
        with pytest.raises(Lost):
            lease.check()

    play(scene)


def test_a_job_that_cannot_be_judged_does_not_stop_the_others() -> None:
    async def scene(platform: Platform) -> None:
        await platform.cluster.create(a_job("broken"))
        broken = ("RLHFJob", "default", "broken")
        await platform.cluster.patch(*broken, {"metadata": {"finalizers": ["x/y"]}})
        await platform.cluster.patch_status(*broken, {"attempt": "not a number"})
        async with platform.operator():
            await platform.clock.sleep(1.0)
            await platform.cluster.create(a_job())
            await platform.until(lambda: "job-planner-1-0" in platform.pods())

    play(scene)


def five_minutes_without_news(monkeypatch: pytest.MonkeyPatch | None = None) -> None:
    """Row 23: every list and watch fails while the data plane is well, but for one actor."""

    async def scene(platform: Platform) -> None:
        cluster, known = platform.cluster, platform.cluster.list

        async def silent(*_: object, **__: object) -> NoReturn:
            raise Temporary("503", delay=1.0)

        async with platform.operator() as controller:
            await cluster.create(a_job(decode={"replicas": 3}))
            await platform.until(lambda: platform.holds("Running"))
            started = len(platform.lives)
            cluster.list, cluster.table.pruned = silent, cluster.table.latest + 1  # type: ignore[method-assign]
            await platform.end("job-decode-0", signal=9)  # which nobody hears of
            await platform.clock.sleep(300.0)
            assert len(platform.lives) == started
            assert controller.cache.trouble
            cluster.list, cluster.table.pruned = known, 0  # type: ignore[method-assign]
            await platform.until(lambda: "job-decode-3" in platform.pods())
            assert platform.status()["attempt"] == 1
            assert len(platform.lives) == started + 1

    if monkeypatch:
        look = Cache.observe

        def forgetful(cache: Cache, job: tuple[str, str]) -> Observed:
            seen = look(cache, job)
            kept = tuple(p for p in seen.pods if not cache.trouble or p.name != "job-decode-1")
            return msgspec.structs.replace(seen, pods=kept)

        monkeypatch.setattr(Cache, "observe", forgetful)
    play(scene)


def test_an_api_server_that_times_out_costs_a_healthy_job_nothing() -> None:
    five_minutes_without_news()


def test_that_test_fails_where_what_is_not_heard_of_counts_as_gone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises((AssertionError, TimeoutError)):
        five_minutes_without_news(monkeypatch)


def test_a_failing_blob_store_holds_pods_back_until_their_time_is_written() -> None:
    async def scene(platform: Platform) -> None:
        async with platform.operator():
            await platform.cluster.create(a_job())
            await platform.until(lambda: platform.holds("Running"))
            platform.blobs.outcomes = iter(["fail"] * 200)
            await platform.cluster.delete(*JOB)
            await platform.clock.sleep(10.0)
            assert platform.pods() == ALL
            platform.blobs.outcomes = iter(())
            await platform.until(lambda: platform.pods() == [])

    play(scene)
