from __future__ import annotations

from pathlib import Path

import pytest

from ebbtide import gpus
from ebbtide.cli.doctor import gpu


@pytest.mark.parametrize(
    ("names", "count"),
    [
        ((), 0),
        (("nvidiactl", "nvidia-uvm"), 0),
        (("nvidiactl", "nvidia0", "nvidia12"), 2),
        (("dxg",), 1),
    ],
    ids=["none", "a driver alone", "two", "wsl"],
)
def test_gpus_are_counted_by_their_device_files(
    tmp_path: Path, names: tuple[str, ...], count: int
) -> None:
    for name in names:
        (tmp_path / name).touch()
    assert gpus.count(tmp_path) == count


def test_a_machine_without_device_files_has_no_gpu(tmp_path: Path) -> None:
    assert gpus.count(tmp_path / "dev") == 0


def test_the_doctor_tells_how_many_gpus_there_are(tmp_path: Path) -> None:
    assert "no NVIDIA GPU" in gpu(tmp_path).found
    for name in ("nvidia0", "nvidia1"):
        (tmp_path / name).touch()
    assert gpu(tmp_path).found.startswith("2 NVIDIA GPUs")
