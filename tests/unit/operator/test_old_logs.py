"""Log files of this machine go when nobody needs them any more."""

import os
from collections.abc import Callable
from pathlib import Path

from ebbtide.adapters.cluster_sqlite.pod_logs import log_file, older_file, remove_stale, rotate
from ebbtide.ports import Meta, Resource
from ebbtide.testing.jobs import a_job
from ebbtide_operator.core.old_logs import needed
from tests.unit.operator.worlds import World

DAY = 86_400.0


def write(root: Path, pod: str, at: float) -> Path:
    """A log of ten bytes whose last line came then; half of it is in the older file."""
    path = log_file(root, "default", pod)
    path.parent.mkdir(exist_ok=True)
    for part in (path, older_file(path)):
        part.write_bytes(b"line\n")
        os.utime(part, (at, at))
    return path


def remains(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("*/*.log*"))


def of(*pods: str) -> Callable[[str, str], bool]:
    return lambda _, pod: pod in pods


def test_old_files_go_with_their_older_part_and_young_and_needed_ones_stay(tmp_path: Path) -> None:
    for pod, at in (("old", 1 * DAY), ("young", 9 * DAY), ("needed", 1 * DAY)):
        write(tmp_path, pod, at)
    assert remove_stale(tmp_path, 5 * DAY, of("needed")) == (2, 10)
    assert remains(tmp_path) == ["needed.log", "needed.log.1", "young.log", "young.log.1"]


def test_a_file_whose_older_part_is_old_is_young(tmp_path: Path) -> None:
    os.utime(write(tmp_path, "p", 1 * DAY), (9 * DAY, 9 * DAY))
    assert remove_stale(tmp_path, 5 * DAY, of()).files == 0


def test_files_of_pods_that_are_there_and_of_jobs_that_are_not_over_are_needed() -> None:
    pod = Resource("v1", "Pod", Meta("other-decode-0"))
    is_needed = needed([a_job("sums")], [pod])
    assert is_needed("default", "other-decode-0")
    assert is_needed("default", "sums-decode-7")
    assert not is_needed("default", "other-decode-1")
    assert not is_needed("elsewhere", "sums-decode-7")


def test_files_of_a_job_that_is_over_are_not_needed() -> None:
    world = World()
    world.rest()
    assert world.job is not None
    assert needed([world.job], [])("default", "job-decode-0")
    world.progress(outcome="complete")
    world.finish("job-planner-1-0", code=0)
    world.rest()
    assert world.own.holds("Complete")
    assert not needed([world.job], [])("default", "job-decode-0")


def test_of_a_log_far_beyond_its_size_only_the_end_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "pod.log"
    path.write_bytes(b"0123456789" * 1000 + b"the end")
    assert rotate(path, limit=7)
    assert path.read_bytes() == b""
    assert older_file(path).read_bytes() == b"the end"
