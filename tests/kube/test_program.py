"""The operator as the program that a pod runs, killed without warning."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from ebbtide_operator.core.site import KubeSite, Site
from tests.worlds.kube import ROOT
from tests.worlds.platform import SYSTEM, Platform

pytestmark = pytest.mark.kube


@contextmanager
def program(scene: Platform, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    token = scene.plane.token(SYSTEM, "ebbtide-operator")
    site = Site(kubernetes=KubeSite(image="ebbtide:test"))
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}",
        "HOME": str(folder),
        "EBBTIDE_CLUSTER": f"kubernetes:{scene.plane.kubeconfig(token)}",
        "EBBTIDE_BLOBS_URL": (folder / "blobs").as_uri(),
        "EBBTIDE_NAMESPACE": scene.namespace,
        "EBBTIDE_LEASE_NAMESPACE": scene.namespace,
        "EBBTIDE_SITE": msgspec.json.encode(site).decode(),
    }
    command = [sys.executable, "-m", "ebbtide_operator"]
    with (folder / "operator.log").open("ab") as log:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


async def test_a_killed_operator_touches_no_pod_and_is_followed_by_the_next(
    scene: Platform, tmp_path: Path
) -> None:
    with program(scene, tmp_path) as first:
        await scene.submit()
        await scene.until("Running")
        before = await scene.kubelet.names()
        first.send_signal(signal.SIGKILL)
    await scene.kubelet.end("job-decode-0", 137)
    await scene.free_lease()
    with program(scene, tmp_path) as second:
        await scene.eventually(lambda: replaced(scene))
        assert set(before) - set(await scene.kubelet.names()) == {"job-decode-0"}
        second.terminate()
        assert await asyncio.to_thread(second.wait, 20) == 0


async def replaced(scene: Platform) -> bool:
    return await scene.kubelet.names("decode") == ["job-decode-1", "job-decode-2"]


def test_an_operator_without_an_image_for_its_pods_says_so(tmp_path: Path) -> None:
    env = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": f"{ROOT}:{ROOT / 'operator'}",
        "EBBTIDE_CLUSTER": "kubernetes",
        "EBBTIDE_BLOBS_URL": "memory:///",
    }
    command = [sys.executable, "-m", "ebbtide_operator"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "image" in done.stdout + done.stderr
