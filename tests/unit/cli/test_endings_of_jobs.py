"""How `get` and `watch` show a job that failed."""

from __future__ import annotations

import io
from typing import Any

import pytest
import typer
from rich.console import Console

from ebbtide.api import Job
from ebbtide.cli.jobs import describe
from ebbtide.cli.watch import Watched, finish

SAID = "job-decode-0: Error (exit code 4): the torch engine broke: [no GPU] " + "very long " * 20
TAIL = (
    '{"at":"t","level":"info","event":"process started","settings":{"spec":"much"}}\n'
    '{"at":"t","level":"error","event":"process ended","why":"the engine broke"}'
)


def failed(message: str, tail: str = TAIL) -> Watched:
    failure = {"role": "decode", "pod": "job-decode-0", "message": tail}
    status = {"lastFailure": failure}
    return Watched("demo", "Failed", "RoleRefused", message, status, ended=True)


def ended(job: Watched, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(typer.Exit):
        finish(job)
    return capsys.readouterr().err


def test_the_end_of_watch_says_the_last_failure_in_a_sentence(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = ended(failed("the limit"), capsys)
    assert "last failure, decode job-decode-0: the engine broke\n" in said
    assert "settings" not in said


def test_what_the_message_says_already_is_not_said_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = ended(failed("job-decode-0: Error: the engine broke"), capsys)
    assert said == "ebbtide: demo is Failed: RoleRefused job-decode-0: Error: the engine broke\n"


def shown(width: int, **condition: str) -> str:
    status: dict[str, Any] = {"conditions": [condition]}
    metadata = {
        "name": "demo",
        "namespace": "default",
        "uid": "u",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    values = {"apiVersion": "v", "kind": "RLHFJob", "metadata": metadata, "spec": {}}
    job = Job.model_validate(
        {**values, "status": status, "state": "Failed", "reason": "", "message": ""}
    )
    console = Console(record=True, width=width, file=io.StringIO())
    console.print(describe(job))
    return console.export_text()


def test_a_long_message_folds_and_the_names_beside_it_stay_whole() -> None:
    text = shown(80, type="Failed", status="True", reason="RoleRefused", message=SAID)
    for name in ("CONDITION", "STATUS", "REASON", "Failed", "True", "RoleRefused", "[no GPU]"):
        assert name in text
    assert text.count("very") == 20
    assert "…" not in text


def test_get_shows_the_uid_by_which_recorded_names_a_job() -> None:
    metadata = {"name": "demo", "uid": "0b1c-22", "creationTimestamp": "2026-01-01T00:00:00+00:00"}
    fields = {"apiVersion": "v1", "kind": "RLHFJob", "metadata": metadata, "spec": {}}
    console = Console(file=io.StringIO(), width=100)
    console.print(describe(Job.model_validate({**fields, "state": "Running"})))
    assert isinstance(console.file, io.StringIO)
    assert "uid: 0b1c-22\n" in console.file.getvalue()
