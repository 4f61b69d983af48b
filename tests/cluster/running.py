"""Jobs in real pods: what is submitted, what is watched while it runs, what is judged at its end."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ebbtide.api import Job
from ebbtide.client import Client, Unreachable
from tests.checker.reader import read
from tests.checker.verdict import Verdict, examine
from tests.e2e.jobs import training
from tests.worlds.chart import JOBS
from tests.worlds.cluster import Cluster, Document, ready

Spec = dict[str, Any]
LOOK_SECONDS = 1.0


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


@dataclass
class Course:
    """What was seen of a job while it ran. `actors`: ready ones at each look, `wanted`: the pool's size then."""

    name: str
    uid: str
    submitted: float
    first_pod: float | None = None
    roles: set[str] = field(default_factory=set)
    actors: list[int] = field(default_factory=list)
    wanted: list[int] = field(default_factory=list)
    ranks: int = 0
    tokens: list[str] = field(default_factory=list)
    """Pods that hold a token of the API server."""

    def look(self, pods: list[Document], pool: Document | None) -> None:
        """Take note of the job's pods, and of how many actors the planner wants."""
        if pool is not None:
            self.wanted.append(pool["spec"]["replicas"])
        if pods and self.first_pod is None:
            self.first_pod = time.monotonic()
        served = [pod for pod in pods if ready(pod)]
        by_role = [pod["metadata"]["labels"]["rlhf.ebbtide.dev/role"] for pod in served]
        self.roles |= set(by_role)
        self.actors.append(by_role.count("decode"))
        self.ranks = max(self.ranks, by_role.count("learner"))
        for pod in pods:
            name = pod["metadata"]["name"]
            if pod["spec"].get("automountServiceAccountToken") and name not in self.tokens:
                self.tokens.append(name)


def submit(client: Client, name: str, spec: Spec) -> Course:
    started = time.monotonic()
    job = client.submit(document(name, spec))
    return Course(name, job.metadata.uid, started)


def seen(client: Client, name: str) -> Job | None:
    """The job, if the gateway is there to say so."""
    try:
        return client.get(name)
    except Unreachable:
        return None


def follow(
    cluster: Cluster,
    client: Client,
    course: Course,
    *,
    seconds: float,
    until: Callable[[Job], bool] = lambda job: job.terminal,
) -> Job:
    """Look at a job's pods until it is as wished; raises AssertionError with how it stands."""
    deadline = time.monotonic() + seconds
    job = None
    while time.monotonic() < deadline:
        course.look(cluster.pods(course.name), cluster.get("dpool", course.name))
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
