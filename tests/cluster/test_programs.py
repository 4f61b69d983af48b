"""Rewards that run programs of answers, in real pods: what they are worth, and what they get hold of."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ebbtide.client import Client
from tests.cluster.running import Course, Spec, follow, steps, submit, tiny
from tests.e2e.jobs import training
from tests.worlds.chart import JOBS
from tests.worlds.cluster import Cluster, Document, ready, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]
HOSTILE = """
import os, socket
found = [path for path in PATHS if os.path.exists(path)]
found += [name for name in os.environ if name not in ("PWD", "LC_CTYPE")]
for host, port in PLACES:
    try:
        socket.create_connection((host, port), 5).close()
        found.append(host)
    except OSError:
        pass
"""
PATHS = ["/proc", "/sys", "/data", "/opt", "/var/run/secrets", "/etc/resolv.conf"]
INSIDE = """
import json, os, pathlib, socket, threading, time
from ebbtide.sandbox.cell import Cell
from ebbtide.sandbox.proof import isolated
from ebbtide.sandbox.trial import Limits, Prints, run

def says(program, cell):
    limits = Limits(cpu_seconds=30, test_seconds=30.0, wall_seconds=40.0)
    return bool(run(program, (Prints("", "done"),), limits=limits, cell=cell)[0].passed)

def spaces():
    found = {}
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            lines = (folder / "net/dev").read_text().splitlines()[2:]
            found[os.readlink(folder / "ns/net")] = sorted(line.split(":")[0].strip() for line in lines)
        except OSError:
            pass
    return found

cell = isolated()
nats = os.environ["EBBTIDE_NATS_URL"].rpartition("/")[2].split(":")
places = [(nats[0], int(nats[1])), ("kubernetes.default.svc.cluster.local", 443)]
places = [(socket.gethostbyname(host), port) for host, port in places]
hostile = HOSTILE.replace("PLACES", repr(places)) + "\\nassert not found\\nprint('done')"
told = {
    "token": os.path.exists("/var/run/secrets/kubernetes.io/serviceaccount/token"),
    "nothing in a cell": says(hostile, cell),
    "network without": not says(hostile.replace(PATHS, "[]"), Cell(cell.python)),
    "own": spaces()[os.readlink("/proc/self/ns/net")],
}
thread = threading.Thread(target=says, args=("import time; time.sleep(3)", cell))
thread.start()
time.sleep(1)
mine = os.readlink("/proc/self/ns/net")
told["cells"] = sorted({d for space, found in spaces().items() if space != mine for d in found})
thread.join()
print(json.dumps(told))
"""


def spec() -> Spec:
    """Two of its three tests hold, whatever an answer says; one of them tries what must not work.

    It goes on until it is cancelled, so that the scorer is there for as long as somebody looks at it.
    """
    program = {
        "type": "code",
        "name": "program",
        "testsField": "tests",
        "extract": "(^)",
        "score": "share",
        "testSeconds": 60,
        "wallSeconds": 120,
    }
    data = {"train": {"type": "jsonl", "uri": "/data/material/programs.jsonl"}}
    return tiny(
        dataset={**data, "maxPromptTokens": 32},
        training=training(totalSteps=1000, promptsPerStep=3, maxResponseTokens=16),
        reward={"components": [program], "timeoutSeconds": 150},
        decode={"engine": "torch", "device": "cpu", "replicas": 1, "maxReplicas": 1},
        planner={"scaling": "static"},
        prefill={"mode": "colocated"},
        learner={"ranks": 1, "device": "cpu"},
    )


@pytest.fixture(scope="module")
def course(installed: Cluster, client: Client) -> Course:
    material = installed.store / "material"
    hostile = HOSTILE.replace("PATHS", repr(PATHS)).replace("PLACES", "[('10.96.0.1', 443)]")
    tests = [f"{hostile}\nassert not found", {"stdin": "", "stdout": ""}]
    tests.append({"stdin": "", "stdout": "no"})
    rows = [{"prompt": prompt, "tests": tests} for prompt in ("abc", "bcd", "cde", "def")]
    file = material / "programs.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    file.chmod(0o644)
    return submit(client, "programs", spec())


@pytest.fixture(scope="module")
def scorer(installed: Cluster, course: Course) -> Document:
    """The pod of the scorer, while it serves."""
    found = lambda: [pod for pod in installed.pods(course.name, "reward") if ready(pod)]  # noqa: E731
    return until(found, seconds=180, what=lambda: str(installed.get("rlhf", course.name)))[0]


@pytest.fixture(scope="module")
def told(installed: Cluster, scorer: Document) -> dict[str, Any]:
    """What the scorer's container says of itself and of the cells that it makes."""
    program = HOSTILE.replace("PATHS", repr(PATHS))
    script = INSIDE.replace("HOSTILE", repr(program)).replace("PATHS", repr(repr(PATHS)))
    name = scorer["metadata"]["name"]
    said = installed.kubectl("exec", "-n", JOBS, name, "--", "python", "-c", script)
    found: dict[str, Any] = json.loads(said.splitlines()[-1])
    return found


def test_only_the_scorers_container_gets_what_cells_need(
    installed: Cluster, scorer: Document
) -> None:
    profile = {"type": "Localhost", "localhostProfile": "ebbtide/cells.json"}
    pods = installed.pods("programs")
    profiles = [pod["spec"]["containers"][0]["securityContext"] for pod in pods]
    assert [one.get("seccompProfile") for one in profiles].count(profile) == 1
    assert {tuple(one["capabilities"]["drop"]) for one in profiles} == {("ALL",)}
    assert scorer["spec"]["containers"][0]["securityContext"]["seccompProfile"] == profile


def test_a_program_gets_no_network_no_token_no_file_and_no_environment(
    told: dict[str, Any],
) -> None:
    assert told["token"] is False
    assert told["nothing in a cell"] is True
    assert told["network without"] is True  # the same program, where nothing holds it back


def test_a_cell_has_a_network_namespace_with_nothing_in_it(told: dict[str, Any]) -> None:
    assert told["own"] == ["eth0", "lo"]
    assert told["cells"] == ["lo"]


def test_programs_are_worth_what_their_tests_say(
    installed: Cluster, client: Client, course: Course, told: dict[str, Any]
) -> None:
    job = follow(client, course, seconds=400, until=lambda job: job.terminal or steps(job) >= 2)
    assert not job.terminal, job.message
    samples = client.samples(course.name, step=1, limit=100).items
    assert len(samples) == 3 * 4
    worth = {(one.score.kind, round(one.score.total or 0, 3)) for one in samples}
    assert worth == {("value", 0.667)}
    client.cancel(course.name)
