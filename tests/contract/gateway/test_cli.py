"""The command line against a served gateway."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from ebbtide import labels, paths, usage
from ebbtide.cli.commands import app
from ebbtide.ports import Meta, Resource
from ebbtide.usage import Usage
from ebbtide.wire import Accepted, SampleKey, Scored, Value
from tests.unit.gateway.test_artifacts_api import HAND, NOWHERE, POLICY, plan
from tests.unit.gateway.test_figures import a_report
from tests.worlds.gateway import TOKEN, a_job, condition
from tests.worlds.serving import Served, served


@pytest.fixture(scope="module")
def gateway() -> Iterator[Served]:
    with served(poll_seconds=0.02) as found:
        yield found


Run = Callable[..., Result]


@pytest.fixture
def run(gateway: Served, tmp_path: Path) -> Run:
    env = {"EBBTIDE_URL": gateway.url, "EBBTIDE_TOKEN": TOKEN, "EBBTIDE_STATE": str(tmp_path)}

    def call(*args: str, **more: str) -> Result:
        return CliRunner(env={**env, **more}).invoke(app, list(args))

    return call


def job_file(folder: Path, name: str, **spec: object) -> str:
    file = folder / "job.yaml"
    file.write_text(yaml.safe_dump(a_job(name, **spec)))
    return str(file)


def test_submit_prints_the_name_alone(run: Run, tmp_path: Path) -> None:
    found = run("submit", job_file(tmp_path, "printed"))
    assert (found.exit_code, found.stdout) == (0, "printed\n")


def test_paths_in_a_job_file_start_at_its_folder(run: Run, tmp_path: Path, gateway: Served) -> None:
    run("submit", job_file(tmp_path, "rooted", model={"uri": "models/tiny"}))
    job = gateway.do(gateway.world.cluster.get("RLHFJob", "default", "rooted"))
    assert job.spec["model"]["uri"] == f"{tmp_path}/models/tiny"


def test_a_fault_in_a_job_file_is_one_line_and_code_2(run: Run, tmp_path: Path) -> None:
    found = run("submit", job_file(tmp_path, "x", bogus=1))
    assert found.exit_code == 2
    assert found.stderr == "ebbtide: /spec/bogus: is not a known field\n"


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: [", "line 2"),
        ("a: 1\na: 2", "line 2, column 1: the key 'a' occurs twice"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_read_is_named_with_the_place(
    run: Run, tmp_path: Path, content: str | None, words: str
) -> None:
    file = tmp_path / "job.yaml"
    if content is not None:
        file.write_text(content)
    found = run("submit", str(file))
    assert found.exit_code == 2
    assert found.stderr.startswith(f"ebbtide: {file}: ")
    assert words in found.stderr


def test_validate_tells_what_is_worth_knowing(run: Run, tmp_path: Path) -> None:
    found = run("validate", job_file(tmp_path, "fine"))
    assert found.exit_code == 0
    assert "is valid" in found.stdout
    assert "has no price" in found.stdout


def test_validate_works_without_a_gateway(run: Run, tmp_path: Path) -> None:
    fine = run("validate", job_file(tmp_path, "fine"), EBBTIDE_URL="")
    wrong = run("validate", job_file(tmp_path, "x", bogus=1), EBBTIDE_URL="")
    assert (fine.exit_code, wrong.exit_code) == (0, 2)
    assert "only the schema was checked" in fine.stderr
    assert "/spec/bogus: is not a known field" in wrong.stderr


def test_list_shows_a_table_and_json_has_everything(run: Run, gateway: Served) -> None:
    status = {
        "progress": {"step": 2, "totalSteps": 3},
        "cost": {"accrued": 0.5, "currency": "EUR"},
    }
    conditions = [condition("Running", reason="RolesReady")]
    gateway.do(gateway.world.put_job("listed", conditions=conditions, **status))
    table = run("list", "--state", "Running").stdout
    assert all(word in table for word in ("NAME", "listed", "Running", "2/3", "0.5000 EUR"))
    found = json.loads(run("list", "--state", "Running", "--json").stdout)
    assert "listed" in [job["metadata"]["name"] for job in found]


def test_get_shows_conditions(run: Run, gateway: Served) -> None:
    shown = [condition("Failed", reason="StallDeadlineExceeded", message="nothing came")]
    gateway.do(gateway.world.put_job("got", conditions=shown))
    text = run("get", "got").stdout
    assert "StallDeadlineExceeded" in text
    assert "nothing came" in text
    assert json.loads(run("get", "got", "--json").stdout)["state"] == "Failed"


def test_a_job_that_does_not_exist_is_one_line_and_code_1(run: Run) -> None:
    reading = ("get", "watch", "logs", "cost", "samples", "explain", "checkpoints")
    for command in (*reading, "cancel", "delete"):
        found = run(command, "nope")
        assert found.exit_code == 1, command
        assert found.stderr == "ebbtide: RLHFJob default/nope does not exist\n", command


def test_explain_tells_the_last_committed_step_in_words_or_as_json(
    run: Run, gateway: Served
) -> None:
    job = gateway.do(gateway.world.put_job("explained", progress={"step": 1, "totalSteps": 3}))
    said = {"rule": "held", "reason": "no answer has been seen yet", "actors": 2}
    decision = {**said, "scaling": "static", "prediction": "blend"}
    report = {"step": 0, "cost": {"currency": "EUR"}, "decision": decision}
    path = paths.step_report(job.metadata.uid, 0)
    gateway.do(gateway.world.blobs.put(path, json.dumps(report).encode()))
    found = run("explain", "explained")
    assert found.exit_code == 0, found.stderr
    text = found.stdout
    assert "step 0: 2 actors (held, static)" in text
    assert "why: no answer has been seen yet" in text
    found = json.loads(run("explain", "explained", "0", "--json").stdout)
    assert found["decision"]["actors"] == 2
    assert "step 1 is not committed yet" in run("explain", "explained", "1").stderr


@pytest.mark.parametrize(
    ("kind", "reason", "code"), [("Complete", "AllStepsDone", 0), ("Failed", "Cancelled", 1)]
)
def test_watch_ends_with_the_job_and_says_how_it_went(
    run: Run, gateway: Served, kind: str, reason: str, code: int
) -> None:
    name = f"watched-{kind.lower()}"
    job = gateway.do(gateway.world.put_job(name, conditions=[condition(kind, reason=reason)]))
    report = {"step": 0, "seconds": 2.0, "rewards": {"mean": 0.25}, "tokens": {"response": 100}}
    path = paths.step_report(job.metadata.uid, 0)
    gateway.do(gateway.world.blobs.put(path, json.dumps(report).encode()))
    found = run("watch", name)
    assert found.exit_code == code
    assert f"{name}: step 0, 2.0 s, reward 0.250, 50 tokens/s" in found.stdout
    lines = [json.loads(line) for line in run("watch", name, "--json").stdout.splitlines()]
    assert lines[-1]["type"] == "end"


def test_submit_can_watch(run: Run, tmp_path: Path, gateway: Served) -> None:
    file = job_file(tmp_path, "both")
    run("submit", file, "--key", "k")
    gateway.do(gateway.world.end("both"))
    found = run("submit", file, "--key", "k", "--watch")
    assert found.exit_code == 0
    assert "both: Complete AllStepsDone" in found.stdout


def test_logs_name_their_pod(run: Run, gateway: Served) -> None:
    gateway.do(gateway.world.put_job("logged", conditions=[condition("Complete")]))
    marks = {labels.JOB: "logged", labels.ROLE: "planner"}
    pod = Resource("v1", "Pod", Meta("logged-planner", labels=marks))
    gateway.do(gateway.world.cluster.create(pod))
    gateway.world.cluster.logs_of["logged-planner"] = [b"one", b"two"]
    assert run("logs", "logged").stdout == "logged-planner | one\nlogged-planner | two\n"
    assert run("logs", "logged", "--follow", "--tail", "1").stdout == "logged-planner | two\n"
    assert run("logs", "logged", "--role", "reward").stdout == "no lines\n"


def test_changes_say_what_they_asked_for(run: Run, gateway: Served) -> None:
    gateway.do(gateway.world.put_job("changed", conditions=[condition("Running")]))
    assert run("suspend", "changed").stdout == "changed: asked to suspend; it is Running now\n"
    assert run("resume", "changed").exit_code == 0
    assert run("delete", "changed").exit_code == 1
    assert run("cancel", "changed").exit_code == 0
    assert run("delete", "changed", "--force").stdout == "changed: deleted\n"


def test_report_writes_both_files(run: Run, gateway: Served, tmp_path: Path) -> None:
    gateway.do(gateway.world.put_job("reported", conditions=[condition("Complete")]))
    found = run("report", "reported", "--out", str(tmp_path / "out"))
    assert found.exit_code == 0, found.stderr
    figures = json.loads((tmp_path / "out/report.json").read_text())
    assert (figures["state"], figures["steps"]) == ("Complete", 0)
    assert "reported" in (tmp_path / "out/report.html").read_text()


def test_a_report_that_cannot_be_written_says_so(run: Run, gateway: Served, tmp_path: Path) -> None:
    gateway.do(gateway.world.put_job("unwritten", conditions=[condition("Complete")]))
    (tmp_path / "file").write_text("")
    found = run("report", "unwritten", "--out", str(tmp_path / "file"))
    assert found.exit_code == 2
    assert "cannot write into" in found.stderr


def test_samples_and_cost_have_words_for_nothing(run: Run, gateway: Served) -> None:
    gateway.do(gateway.world.put_job("bare"))
    assert run("samples", "bare").stdout == "no samples yet\n"
    assert "total 0.0000 USD" in run("cost", "bare").stdout
    assert run("samples", "bare", "--purpose", "test").exit_code == 2


@pytest.mark.parametrize("command", [("samples", "empty", "--step"), ("explain", "empty")])
def test_a_step_that_is_not_there_is_an_error_of_every_command(
    run: Run, gateway: Served, command: tuple[str, ...]
) -> None:
    if "empty" not in run("list").stdout:
        gateway.do(gateway.world.put_job("empty"))
    found = run(*command, "99")
    assert (found.exit_code, found.stdout) == (1, "")
    assert "step 99" in found.stderr


def test_samples_that_are_alike_are_counted_together(run: Run, gateway: Served) -> None:
    async def fill() -> None:
        uid = (await gateway.world.put_job("grouped")).metadata.uid
        keys = [SampleKey(uid, 0, 0, index) for index in range(2)]
        ended = [Accepted(key, HAND, NOWHERE, POLICY, 90, "length") for key in keys]
        judged = [Scored(key, Value(1.0, ()), "v1") for key in keys[:1]]
        await gateway.world.put_ledger(uid, [plan(0, "train"), *ended, *judged])

    gateway.do(fill())
    found = json.loads(run("samples", "grouped", "--by", "reward", "--json").stdout)
    told = [(one["key"]["reward"], one["samples"], one["reward"]) for one in found["items"]]
    assert told == [("v1", 1, 1.0), ("", 1, None)]
    table = run("samples", "grouped", "--by", "length", "--since", "0").stdout
    assert all(word in table for word in ("LENGTH", "65-256", "2 samples of steps 0 to 0"))
    for wrong in (["--by", "colour"], ["--since", "1"], ["--by", "task", "--purpose", "x"]):
        assert run("samples", "grouped", *wrong).exit_code == 2


def test_a_job_is_tracked_to_its_end(run: Run, gateway: Served, tmp_path: Path) -> None:
    async def fill() -> None:
        made = await gateway.world.put_job("tracked", conditions=[condition("Complete")])
        for step in range(2):
            path = paths.step_report(made.metadata.uid, step)
            data = a_report(step).model_dump_json(by_alias=True).encode()
            await gateway.world.blobs.put(path, data)

    gateway.do(fill())
    found = run("track", "tracked", "--to", "tensorboard", "--at", str(tmp_path))
    assert found.exit_code == 0, found.stderr
    assert "2 steps of tracked (Complete)" in found.stderr
    (events,) = (tmp_path / "tracked").glob("events.*")
    assert b"rewards/task/mean" in events.read_bytes()
    wrong = run("track", "tracked", "--to", "tape", "--at", str(tmp_path))
    assert wrong.exit_code == 2


def test_costs_of_all_jobs_are_shown_by_tenant(run: Run, gateway: Served) -> None:
    gateway.do(gateway.world.put_job("counted"))
    table = run("costs", "--by", "tenant").stdout
    assert all(word in table for word in ("TENANT", "JOBS", "none", "USD"))
    assert run("costs", "--by", "colour").exit_code == 2
    assert "EBBTIDE_OPENCOST_URL" in run("costs", "--opencost").stderr


def test_a_wrong_token_names_the_fix(run: Run) -> None:
    found = run("list", EBBTIDE_TOKEN="wrong")
    assert found.exit_code == 1
    assert found.stderr.count("\n") == 1
    assert "ebbtide up" in found.stderr


def test_no_gateway_names_the_fix(run: Run) -> None:
    nowhere = run("list", EBBTIDE_URL="", HOME="/nonexistent")
    assert nowhere.exit_code == 2
    assert "ebbtide up" in nowhere.stderr


def test_doctor_finds_the_gateway(run: Run) -> None:
    found = run("doctor", "--json")
    checks = {item["check"]: item for item in json.loads(found.stdout)}
    assert checks["gateway"]["verdict"] == "ok"
    assert checks["nats-server"]["verdict"] == "ok"
    wrong = run("doctor", EBBTIDE_TOKEN="wrong")
    assert wrong.exit_code == 1
    assert "fail" in wrong.stdout


def test_cost_is_printed_for_people_programs_and_spreadsheets(run: Run, gateway: Served) -> None:
    job = gateway.do(gateway.world.put_job("paid"))
    uid = job.metadata.uid
    held = Usage(uid, "decode", "d-0", "u", "default", 1, 0.0, 90.0, 90.0)
    gateway.do(gateway.world.blobs.put(paths.usage(uid, "d-0", "u"), usage.encode(held)))
    shown = run("cost", "paid", "--by", "actor").stdout
    assert "d-0" in shown
    assert "1 min 30 s" in shown or "90 s" in shown
    assert "unknown" in shown
    rows = run("cost", "paid", "--by", "role", "--by", "pool", "--csv").stdout.splitlines()
    assert rows == ["role,pool,seconds,cost,currency", "decode,default,90.0,,USD"]
    sold = run("cost", "paid", "--by", "capacity", "--csv").stdout.splitlines()
    assert sold == ["capacity,seconds,cost,currency", "unknown,90.0,,USD"]
    assert json.loads(run("cost", "paid", "--json").stdout)["heldSeconds"] == 90.0
    assert run("cost", "paid", "--by", "colour").exit_code == 2


@pytest.mark.parametrize("key", ["demo", "demo/1/2", "demo/a/0/0"])
def test_a_key_that_is_none_is_refused_with_its_form(run: Run, key: str) -> None:
    found = run("sample", key)
    assert found.exit_code == 2
    assert "JOB/STEP/GROUP/INDEX" in found.stderr


def test_an_estimate_says_what_is_not_known(run: Run, tmp_path: Path) -> None:
    found = run("validate", job_file(tmp_path, "dear"), "--estimate")
    assert found.exit_code == 0, found.stderr
    assert "2 decode" in found.stdout
    assert "time: unknown" in found.stdout
