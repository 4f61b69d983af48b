"""A cluster with nodes that run pods, and an installation of the chart in it.

The cluster is `make cluster-up`'s, or the one whose kubeconfig CLUSTER_KUBECONFIG names. Everything is
done as people do it: by helm, by kubectl, and by REST with a service account's token.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from ebbtide import labels
from ebbtide.adapters.daemon import free_port
from ebbtide.client import Client, Unreachable
from tests.worlds import chart
from tests.worlds.chart import CHART, JOBS, SYSTEM
from tests.worlds.kube import ROOT, tools

T = TypeVar("T")
LOCAL = ROOT / "deploy/local-cluster"
RELEASE = "ebbtide"
WHOLE = "EBBTIDE_COMPUTE_IMAGE"
"""Set: pods of jobs are made of the image `compute` (6 GB), which the cluster has, and of no volume."""
PERSON = "trainer"
"""Service account whose token the tests show at the gateway."""
Document = dict[str, Any]


def until(probe: Callable[[], T | None], *, seconds: float, what: str | Callable[[], str]) -> T:
    """Ask until there is something; raises AssertionError at the deadline."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := probe():
            return found
        time.sleep(0.2)
    raise AssertionError(f"not within {seconds:.0f} s: {what if isinstance(what, str) else what()}")


@dataclass(frozen=True)
class Cluster:
    """A cluster, as its administrator sees it. `folder`: where the local one keeps its volumes."""

    kubeconfig: Path
    folder: Path

    def kubectl(self, *words: str, stdin: str | None = None, check: bool = True) -> str:
        """What kubectl prints; raises AssertionError with what it complains of."""
        done = subprocess.run(
            [str(tools() / "kubectl"), f"--kubeconfig={self.kubeconfig}", *words],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env={"HOME": "/nonexistent", "PATH": "/usr/bin:/bin"},
        )
        assert done.returncode == 0 or not check, f"kubectl {' '.join(words)}: {done.stderr}"
        return done.stdout if done.returncode == 0 else done.stdout + done.stderr

    def helm(self, *words: str) -> str:
        """What helm prints; raises AssertionError with what it complains of."""
        done = chart.helm(*words, kubeconfig=str(self.kubeconfig))
        assert done.returncode == 0, f"helm {' '.join(words)}: {done.stderr}"
        return done.stdout

    def objects(self, kind: str, namespace: str = JOBS, selector: str = "") -> list[Document]:
        """Objects of a kind; none where the kind itself is gone."""
        words = ["get", kind, "-n", namespace, "-o", "json", "--ignore-not-found"]
        said = self.kubectl(*words, *(["-l", selector] if selector else []))
        return list(json.loads(said)["items"]) if said else []

    def get(self, kind: str, name: str, namespace: str = JOBS) -> Document | None:
        """One object, or None."""
        said = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        return dict(json.loads(said)) if said else None

    def apply(self, *documents: Document) -> None:
        """By kubectl apply."""
        items = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
        self.kubectl("apply", "-f", "-", stdin=json.dumps(items))

    def pods(self, job: str, role: str = "") -> list[Document]:
        """Pods of a job that nobody has deleted."""
        selector = f"{labels.JOB}={job}" + (f",{labels.ROLE}={role}" if role else "")
        found = self.objects("pods", selector=selector)
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    @contextmanager
    def watch(self, kind: str, selector: str) -> Iterator[list[Document]]:
        """Every state of the chosen objects, one after the other; filled when the block ends."""
        found: list[Document] = []
        words = ["get", kind, "-n", JOBS, "-l", selector, "--watch", "-o", "json"]
        command = [str(tools() / "kubectl"), f"--kubeconfig={self.kubeconfig}", *words]
        with tempfile.TemporaryFile() as states:
            with subprocess.Popen(command, stdout=states) as process:
                yield found
                assert process.poll() is None, f"{' '.join(words)} ended before it was told to"
                process.terminate()
            states.seek(0)
            found.extend(documents(states.read().decode()))

    @property
    def store(self) -> Path:
        """The folder that all pods have at /data."""
        return self.folder / "volumes/store"


def documents(text: str) -> Iterator[Document]:
    """JSON objects written one after the other; one that is cut off at the end is left out."""
    decoder = json.JSONDecoder()
    rest = text.lstrip()
    while rest:
        try:
            found, end = decoder.raw_decode(rest)
        except json.JSONDecodeError:
            return
        yield found
        rest = rest[end:].lstrip()


def ready(pod: Document) -> bool:
    """Whether it serves."""
    conditions = pod.get("status", {}).get("conditions", ())
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def the_cluster() -> Cluster:
    """The one that runs; starting it is `make cluster-up`'s work and not a test's."""
    folder = Path(os.environ.get("EBBTIDE_CLUSTER_DIR") or ROOT / "runs/cluster")
    kubeconfig = Path(os.environ.get("CLUSTER_KUBECONFIG") or folder / "kubeconfig")
    assert kubeconfig.is_file(), f"no cluster at {kubeconfig}: run `make cluster-up`"
    return Cluster(kubeconfig, folder)


def settings() -> list[str]:
    """Values of an installation on the local cluster."""
    files = (CHART / "profiles/local.yaml", LOCAL / "values.yaml")
    words = [word for file in files for word in ("-f", str(file))]
    if os.environ.get(WHOLE):
        parts = ["images.compute.repository=ebbtide/compute", "jobs.env.PYTHONPATH=null"]
        words += ["--set", ",".join([*parts, "jobs.volumes.packages=null"])]
    return words


def prepare(cluster: Cluster) -> None:
    """Namespaces, volumes, and somebody who may run jobs."""
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    owned = {"app.kubernetes.io/managed-by": "Helm"}
    released = {"meta.helm.sh/release-name": RELEASE, "meta.helm.sh/release-namespace": SYSTEM}
    for name, more in ((SYSTEM, {}), (JOBS, owned)):
        meta = {"name": name, "labels": restricted | more, "annotations": released if more else {}}
        cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    volumes = (LOCAL / "volumes.yaml").read_text()
    volumes = volumes.replace("FOLDER", str(cluster.folder)).replace("NODE", "node1")
    cluster.kubectl("apply", "-f", "-", stdin=volumes)
    cluster.apply(*_person())


def _person() -> list[Document]:
    rbac = "rbac.authorization.k8s.io"
    meta = {"name": PERSON, "namespace": JOBS}
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": meta,
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", **meta}],
        },
    ]


def install(cluster: Cluster, chart: Path = CHART, *more: str) -> float:
    """Install, or upgrade what is there; returns the seconds until everything is ready."""
    started = time.monotonic()
    words = ["upgrade", "--install", RELEASE, str(chart), "-n", SYSTEM, *settings(), *more]
    if (kubelet := cluster.folder / "kubelet").is_dir():
        words += ["--set", f"jobs.sandbox.installer.folder={kubelet}/seccomp"]
    cluster.helm(*words, "--wait", "--timeout", "5m")
    return time.monotonic() - started


def earlier_chart(folder: Path) -> Path:
    """The chart before its last change, as git has it, unpacked into a folder."""
    path = str(CHART.relative_to(ROOT))
    changes = _git("log", "-n2", "--format=%H", "--", path).decode().split()
    with tarfile.open(fileobj=io.BytesIO(_git("archive", changes[-1], path))) as archive:
        archive.extractall(folder, filter="data")
    return folder / path


def _git(*words: str) -> bytes:
    done = subprocess.run(["git", *words], capture_output=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


@dataclass
class Door:
    """The gateway from outside: kubectl port-forward, started again whenever it ends."""

    cluster: Cluster
    port: int = field(default_factory=free_port)
    _open: bool = True
    _forward: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Until it is shut."""
        words = ["port-forward", "-n", SYSTEM, f"svc/{RELEASE}-gateway", f"{self.port}:80"]
        command = [str(tools() / "kubectl"), f"--kubeconfig={self.cluster.kubeconfig}", *words]
        while self._open:
            self._forward = subprocess.Popen(
                command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
            self._forward.wait()
            time.sleep(0.3)

    def shut(self) -> None:
        """End it for good."""
        self._open = False
        if self._forward:
            self._forward.kill()


@contextmanager
def gateway(cluster: Cluster) -> Iterator[Client]:
    """A client with a token of a service account that may run jobs."""
    token = cluster.kubectl("create", "token", PERSON, "-n", JOBS, "--duration=2h").strip()
    door = Door(cluster)
    thread = threading.Thread(target=door.run, daemon=True)
    thread.start()
    try:
        with Client(url=f"http://127.0.0.1:{door.port}", token=token) as client:
            until(lambda: _answers(client), seconds=60, what="the gateway through port-forward")
            yield client
    finally:
        door.shut()
        thread.join(10)


def _answers(client: Client) -> bool:
    with suppress(Unreachable):
        client.page()
        return True
    return False
