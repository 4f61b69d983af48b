"""Jobs in real pods: what is submitted, what is watched while it runs, what is judged at its end."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ebbtide import labels
from ebbtide.api import Job
from ebbtide.client import Client, Unreachable
from tests.checker.reader import read
from tests.checker.verdict import Verdict, examine
from tests.e2e.jobs import training
from tests.worlds.chart import JOBS
from tests.worlds.cluster import Cluster, Document

Spec = dict[str, Any]
LOOK_SECONDS = 1.0
DEEP = {"uri": "/data/material/deep"}
"""A model whose answers take seconds on any machine."""


def tiny(**changes: Any) -> Spec:
    """A job of few steps on the torch engine, by all roles; `changes` replace whole parts."""
    where = "/data/material"
    base: Spec = {
        "model": {"uri": f"{where}/model"},
        "dataset": {
            "train": {"type": "jsonl", "uri": f"{where}/prompts.jsonl"},
            "maxPromptTokens": 32,
        },
        "algorithm": {"type": "grpo", "groupSize": 4},
        "training": training(totalSteps=4, promptsPerStep=6, maxResponseTokens=160),
        "reward": {"components": [{"type": "regex", "name": "early", "pattern": "^[a-m]"}]},
        "decode": {"engine": "torch", "device": "cpu", "replicas": 0, "maxReplicas": 2},
        "prefill": {"mode": "service", "device": "cpu"},
        "planner": {"scaling": "elastic", "migration": "tau", "tau": 0.3},
        "learner": {"ranks": 2, "device": "cpu"},
        "checkpoint": {"everySteps": 2},
        "prices": [{"pool": "default", "perHour": 1.0}],
        "backoffLimit": 100,
    }
    return base | changes


def document(name: str, spec: Spec) -> Document:
    kind = {"apiVersion": "rlhf.ebbtide.dev/v1alpha1", "kind": "RLHFJob"}
    return {**kind, "metadata": {"name": name}, "spec": spec}


@dataclass(frozen=True)
class Course:
    """A job that was submitted."""

    name: str
    uid: str


@dataclass(frozen=True)
class Witnessed:
    """Every state of a job's pods and of its pool, in order: a look now and then misses short ones."""

    pods: list[Document]
    pools: list[Document]

    def names(self, role: str) -> set[str]:
        """Pods of a role whose program was started."""
        return {
            pod["metadata"]["name"]
            for pod in self.pods
            if pod["metadata"]["labels"][labels.ROLE] == role
            and pod["status"].get("phase") == "Running"
        }

    @property
    def with_token(self) -> set[str]:
        """Pods that hold a token of the API server."""
        held = [pod for pod in self.pods if pod["spec"].get("automountServiceAccountToken")]
        return {pod["metadata"]["name"] for pod in held}

    @property
    def wanted(self) -> list[int]:
        """Sizes of the pool."""
        return [pool["spec"]["replicas"] for pool in self.pools]


@contextmanager
def witness(cluster: Cluster, name: str) -> Iterator[Witnessed]:
    """Note what becomes of a job's pods and pool; filled when the block ends."""
    chosen = f"{labels.JOB}={name}"
    with cluster.watch("pods", chosen) as pods, cluster.watch("dpool", chosen) as pools:
        yield Witnessed(pods, pools)


def submit(client: Client, name: str, spec: Spec) -> Course:
    return Course(name, client.submit(document(name, spec)).metadata.uid)


def seen(client: Client, name: str) -> Job | None:
    """The job, if the gateway is there to say so."""
    try:
        return client.get(name)
    except Unreachable:
        return None


def follow(
    client: Client,
    course: Course,
    *,
    seconds: float,
    until: Callable[[Job], bool] = lambda job: job.terminal,
) -> Job:
    """Ask for a job until it is as wished; raises AssertionError with how it stands."""
    deadline = time.monotonic() + seconds
    job = None
    while time.monotonic() < deadline:
        job = seen(client, course.name) or job
        if job is not None and until(job):
            return job
        time.sleep(LOOK_SECONDS)
    raise AssertionError(f"{course}: {job and (job.state, job.reason, job.message, job.status)}")


def judged(cluster: Cluster, course: Course) -> Verdict:
    """The independent checker's verdict, from the files on the volume."""
    return examine(read(cluster.store, course.uid, []))


def steps(job: Job) -> int:
    """Updates that are committed."""
    return int((job.status.get("progress") or {}).get("step") or 0)


def delete_pod(cluster: Cluster, pod: Document, *, grace: int | None = None) -> None:
    words = ["delete", "pod", pod["metadata"]["name"], "-n", JOBS, "--wait=false"]
    cluster.kubectl(*words, *([] if grace is None else [f"--grace-period={grace}", "--force"]))
