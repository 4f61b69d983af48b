from __future__ import annotations

import io
import json
import os
import re
import signal
import subprocess
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from ebbtide import lock, tokens
from ebbtide.api import Event, LogLine
from ebbtide.cli import ending, files, local
from ebbtide.cli.commands import app
from ebbtide.cli.ending import guarded
from ebbtide.cli.results import Wanted, log_line, show_logs
from ebbtide.cli.show import duration, money
from ebbtide.cli.watch import Watched, panel, sparkline, step_line
from ebbtide.endpoint import Up, read_up, state_dir, write_up
from ebbtide.errors import Permanent, Refused
from ebbtide.locating import locate
from ebbtide.sse import parse_stream

COMMANDS = [c.name or c.callback.__name__ for c in app.registered_commands if c.callback]


def run(*args: str, **env: str) -> Any:
    return CliRunner(env=env).invoke(app, list(args))


# --- help and endings -----------------------------------------------------------------------------


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_each_command_has_an_example(command: str) -> None:
    found = run(command, "--help")
    assert found.exit_code == 0
    assert f"Example: ebbtide {command}" in found.stdout


def test_help_teaches_the_first_steps() -> None:
    assert "ebbtide submit deploy/examples/demo.yaml --watch" in run("--help").stdout


@pytest.mark.parametrize("args", [["bogus"], ["get"], ["list", "--limit", "x"]])
def test_wrong_usage_is_code_2(args: list[str]) -> None:
    assert run(*args).exit_code == 2


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (Refused("no: do this"), 2, "ebbtide: no: do this"),
        (Permanent("broken"), 1, "ebbtide: broken"),
        (OSError(28, "No space left on device"), 1, "ebbtide: [Errno 28] No space left on device"),
        (KeyError("x"), 1, "this is a bug in ebbtide"),
        (KeyboardInterrupt(), 130, ""),
        (typer.Exit(7), 7, ""),
    ],
)
def test_a_command_ends_with_a_line_and_a_code(
    error: BaseException, code: int, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    @guarded
    def command() -> None:
        raise error

    with pytest.raises(typer.Exit) as caught:
        command()
    assert caught.value.exit_code == code
    told = capsys.readouterr().err
    assert words in told
    assert "Traceback" not in told


def test_fail_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit):
        ending.fail("because", 3)
    assert capsys.readouterr().err == "ebbtide: because\n"


# --- finding the gateway --------------------------------------------------------------------------


def started(folder: Path, url: str = "http://here", **more: Any) -> None:
    (folder / "token").write_text("secret\n")
    write_up(folder, Up(url, str(folder / "token"), str(folder), **more))


def test_the_environment_names_the_gateway_first(tmp_path: Path) -> None:
    started(tmp_path)
    environ = {"EBBTIDE_STATE": str(tmp_path), "EBBTIDE_URL": "http://there"}
    assert locate({**environ, "EBBTIDE_TOKEN": "t"}, tmp_path).token == "t"
    assert locate(environ, tmp_path).token == ""  # never send a token to another gateway


def test_what_up_started_is_found_with_its_token(tmp_path: Path) -> None:
    started(tmp_path)
    found = locate({"EBBTIDE_STATE": str(tmp_path)}, tmp_path)
    assert (found.url, found.token) == ("http://here", "secret")


def test_the_clients_own_file_comes_last(tmp_path: Path) -> None:
    own = tmp_path / ".config/ebbtide/client.json"
    own.parent.mkdir(parents=True)
    own.write_text('{"url": "http://far", "token": "t"}')
    assert locate({}, tmp_path).url == "http://far"
    own.write_text("{")
    with pytest.raises(Refused, match=r"client\.json cannot be read"):
        locate({}, tmp_path)


def test_without_any_the_way_out_is_named(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="ebbtide up"):
        locate({}, tmp_path)


def test_a_token_file_that_is_gone_is_named(tmp_path: Path) -> None:
    started(tmp_path)
    (tmp_path / "token").unlink()
    with pytest.raises(Refused, match="cannot read the token file"):
        locate({"EBBTIDE_STATE": str(tmp_path)}, tmp_path)


def test_the_state_folder_follows_the_environment(tmp_path: Path) -> None:
    assert state_dir({}, tmp_path) == tmp_path / ".local/state/ebbtide"
    assert state_dir({"XDG_STATE_HOME": "/x"}, tmp_path) == Path("/x/ebbtide")
    assert read_up(tmp_path) is None


# --- tokens ---------------------------------------------------------------------------------------


def test_a_token_is_known_by_its_hash_alone() -> None:
    token = tokens.new_token()
    text = f"# ours\n{tokens.line('team', token)}\n\n"
    assert token not in text
    assert tokens.tenant_of(token, tokens.parse(text)) == "team"
    assert tokens.tenant_of(token + "x", tokens.parse(text)) is None


@given(st.text(max_size=60))
def test_a_wrong_tokens_file_is_refused_without_repeating_it(text: str) -> None:
    with pytest.raises(Refused) as caught:
        tokens.parse(f"{text}\nno token")
    assert re.fullmatch(r"line \d+ of the tokens file is not `tenant:sha256`", caught.value.detail)


# --- up and down ----------------------------------------------------------------------------------


def test_nothing_to_stop_is_no_error(tmp_path: Path) -> None:
    assert run("down", "--state-dir", str(tmp_path)).stdout == "nothing is running\n"
    started(tmp_path, pids={"up": 2**22 + 1}, stage="stopped")
    assert run("down", "--state-dir", str(tmp_path)).stdout == "nothing is running\n"


def test_a_running_stack_is_not_started_again(tmp_path: Path, owner: int) -> None:
    started(tmp_path, pids={"up": owner}, ready=True)
    found = run("up", "--state-dir", str(tmp_path))
    assert found.exit_code == 0
    assert "is running already at http://here" in found.stdout


def test_a_pid_that_another_process_bears_by_now_is_no_running_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(tmp_path, pids={"up": os.getpid()}, ready=True)  # of a supervisor that was killed
    assert local.running(tmp_path) is None
    monkeypatch.setattr(local, "_MODULE", "no_such_module_x")
    assert "could not start:" in run("up", "--state-dir", str(tmp_path)).stderr


def test_a_stack_that_has_not_written_its_file_yet_is_not_judged_by_an_older_one(
    tmp_path: Path, owner: int
) -> None:
    started(tmp_path, pids={"up": os.getpid()}, ready=True)
    assert local.running(tmp_path) is None
    assert lock.holder(tmp_path) == owner


def test_down_ends_the_process_that_holds_the_lock_and_no_other(tmp_path: Path, owner: int) -> None:
    started(tmp_path, pids={"up": os.getpid()}, ready=True)
    assert run("down", "--state-dir", str(tmp_path)).stdout == "stopped\n"
    assert lock.holder(tmp_path) is None


def test_a_start_that_is_interrupted_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(_state: Path, process: subprocess.Popen[bytes], *_: object) -> NoReturn:
        launched.append(process)
        raise KeyboardInterrupt

    launched: list[subprocess.Popen[bytes]] = []
    monkeypatch.setattr(local, "_await", interrupted)
    try:
        assert run("up", "--port", "0", "--state-dir", str(tmp_path)).exit_code == 130
        assert launched[0].wait(60) == -signal.SIGTERM
    finally:
        run("down", "--state-dir", str(tmp_path))


def test_a_stack_that_cannot_start_says_its_last_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_MODULE", "no_such_module_x")
    found = run("up", "--state-dir", str(tmp_path))
    assert found.exit_code == 1
    assert "could not start:" in found.stderr
    assert "No module named no_such_module_x" in found.stderr


# --- files ----------------------------------------------------------------------------------------


def test_only_relative_paths_of_models_and_data_are_rooted() -> None:
    document = {
        "spec": {
            "model": {"uri": "m", "tokenizerUri": "/t"},
            "dataset": {"train": {"uri": "s3://b/x"}, "eval": {"uri": "../e.jsonl"}},
            "decode": {"profile": "p.json"},
        }
    }
    found = files.rooted(document, Path("/jobs"))["spec"]
    assert found["model"] == {"uri": "/jobs/m", "tokenizerUri": "/t"}
    assert found["dataset"]["train"]["uri"] == "s3://b/x"
    assert found["dataset"]["eval"]["uri"] == "/jobs/../e.jsonl"
    assert found["decode"] == {"profile": "/jobs/p.json"}


@pytest.mark.parametrize("document", [None, 3, [], {}, {"spec": 1}, {"spec": {"model": []}}])
def test_a_document_of_another_shape_is_left_alone(document: Any) -> None:
    assert files.rooted(document, Path("/jobs")) == document


# --- watch ----------------------------------------------------------------------------------------


def event(kind: str, **data: Any) -> Event:
    return Event(id="1", type=kind, data=data)


REPORT = {
    "step": 4,
    "seconds": 2.0,
    "rewards": {"mean": 0.5},
    "evaluation": {"mean": 0.4},
    "tokens": {"response": 300},
    "phases": {"decode": 1.5, "learn": 0.5},
}


def watched() -> Watched:
    status = {
        "progress": {"step": 5, "totalSteps": 10, "phase": "decode"},
        "roles": [{"name": "reward", "desired": 3, "ready": 2, "pending": 1}],
        "cost": {"accrued": 0.25, "currency": "EUR"},
    }
    job = Watched("demo").take(event("step", **REPORT))
    return job.take(event("progress", state="Running", status=status))


def test_the_live_table_shows_what_matters() -> None:
    console = Console(width=100, record=True, file=open(os.devnull, "w", encoding="utf-8"))  # noqa: PTH123, SIM115
    with console.file:
        console.print(panel(watched(), 12.0))
        text = console.export_text()
    for words in (
        "demo",
        "Running",
        "5/10",
        "0.500",
        "0.400",
        "reward pods",
        "2 of 3 ready, 1 pending",
    ):
        assert words in text, words
    for words in ("150 tokens/s", "decode 1.50 s", "0.2500 EUR"):
        assert words in text, words


def test_an_empty_job_can_be_shown_too() -> None:
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        Console(file=nowhere).print(panel(Watched("demo"), 0.0))


def test_the_end_keeps_what_was_known_before() -> None:
    last = watched().take(event("end", state="Complete"))
    assert (last.state, last.ended, last.rewards) == ("Complete", True, (0.5,))
    assert last.status["progress"]["step"] == 5


def test_what_the_operator_noted_is_shown_with_how_often() -> None:
    note = Event(id="1", type="note", reason="PodFailed", message="p: gone", data={"count": 3})
    assert Watched("demo").take(note).notes == ("PodFailed: p: gone (3 times)",)


def test_a_step_is_one_line() -> None:
    assert step_line(REPORT) == "step 4, 2.0 s, reward 0.500, eval 0.400, 150 tokens/s"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain words", "plain words"),
        ('{"not": "ours"}', '{"not": "ours"}'),
        (
            (
                '{"role": "decode", "pod": "p", "at": "2026-01-01T10:20:30Z", "level": "info",'
                ' "event": "policy loaded", "policy": 7}'
            ),
            "10:20:30 policy loaded policy=7",
        ),
        (
            '{"at": "2026-01-01T10:20:30Z", "level": "warning", "event": "broker lost", "why": "x"}',
            "10:20:30 WARNING: broker lost why=x",
        ),
    ],
)
def test_a_log_line_is_shown_in_words(text: str, shown: str) -> None:
    line = LogLine(pod="p", role="decode", number=1, text=text)
    assert log_line(line) == f"p | {shown}"


SUPERVISED = {
    "step": 4,
    "kind": "sft",
    "seconds": 2.0,
    "tokens": {"response": 0},
    "learner": {"tokens": 0, "stats": {"loss": 1.25, "computed_tokens": 5000.0}},
}


@pytest.mark.parametrize(
    ("text", "wanted", "holds"),
    [
        ('{"level":"warning","event":"x","step":3}', Wanted(level="warning"), True),
        ('{"level":"info","event":"x"}', Wanted(level="warning"), False),
        ("Traceback", Wanted(level="warning"), False),
        ("Traceback", Wanted(match="Trace"), True),
        ('{"level":"error","event":"y"}', Wanted(match="x", level="info"), False),
    ],
)
def test_log_lines_are_chosen_by_text_and_level(text: str, wanted: Wanted, holds: bool) -> None:
    assert wanted.holds(text) == holds


def test_a_level_that_is_none_is_refused() -> None:
    with pytest.raises(Refused, match="--level"):
        Wanted(level="loud")


def test_a_role_that_is_none_is_refused() -> None:
    more: dict[str, Any] = {"pod": None, "tail": 1, "follow": False, "as_json": False}
    with pytest.raises(Refused, match="--role must be one of planner, decode"):
        show_logs("demo", role="rewards", wanted=Wanted(), **more)


def test_a_supervised_step_shows_its_loss_and_what_it_learnt() -> None:
    assert step_line(SUPERVISED) == "step 4, 2.0 s, loss 1.2500, 2500 tokens/s"
    job = Watched("sft").take(Event(id="1", type="step", data=SUPERVISED))
    console = Console(record=True, width=100, file=io.StringIO())
    console.print(panel(job, 1.0))
    assert "1.2500" in console.export_text()


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=100))
def test_a_sparkline_has_one_block_per_value_up_to_its_width(values: list[float]) -> None:
    assert len(sparkline(tuple(values))) == min(40, len(values))


def test_amounts_and_times_are_said_plainly() -> None:
    assert money(None, "USD") == "unknown"
    assert money(0.0, "USD") == "0.0000 USD"
    said = [duration(s) for s in (0.04, 9.96, 61, 125, 7261)]
    assert said == ["0.0 s", "10.0 s", "61 s", "2 min 05 s", "2 h 01 min"]


def test_a_stream_is_parsed_event_by_event_without_its_comments() -> None:
    text = ': ping\n\nid: 1\nevent: step\ndata: {}\n\n: ping\n\ndata: {"a": 1}\n\nevent: half'
    assert list(parse_stream(iter(text.split("\n")))) == [
        ("step", "{}", "1"),
        ("message", '{"a": 1}', ""),
    ]


def test_up_json_says_where_and_never_the_token(tmp_path: Path) -> None:
    started(tmp_path)
    assert "secret" not in json.dumps(json.loads((tmp_path / "up.json").read_text()))
