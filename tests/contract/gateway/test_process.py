"""The gateway as a process over the real object store and a folder of blobs."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ebbtide import tokens
from ebbtide.client import Client
from services.gateway.__main__ import main
from tests.worlds.gateway import TOKEN, a_job


def environment(folder: Path, **more: str) -> dict[str, str]:
    (folder / "tokens").write_text(tokens.line("local", TOKEN))
    (folder / "blobs").mkdir(exist_ok=True)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("EBBTIDE_")}
    return {
        **kept,
        "EBBTIDE_CLUSTER": str(folder / "objects.db"),
        "EBBTIDE_BLOBS_URL": f"file://{folder}/blobs",
        "EBBTIDE_TOKENS_FILE": str(folder / "tokens"),
        "EBBTIDE_CHECK_PATHS": "false",
        "EBBTIDE_PORT": "0",
        **more,
    }


def launch(env: Mapping[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "services.gateway"]
    return subprocess.Popen(command, env=dict(env), stderr=subprocess.PIPE, text=True)


@contextmanager
def running(folder: Path, **more: str) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    process = launch(environment(folder, **more))
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if "gateway listens" in line:
                yield json.loads(line)["url"], process
                break
        else:
            pytest.fail("the gateway did not start")
    finally:
        process.kill()
        process.communicate()


def test_jobs_outlive_a_killed_gateway_and_sigterm_ends_it_cleanly(tmp_path: Path) -> None:
    with running(tmp_path) as (url, process), Client(url=url, token=TOKEN) as client:
        made = client.submit(a_job("kept"), key="k")
        process.kill()
    with running(tmp_path) as (url, process), Client(url=url, token=TOKEN) as client:
        assert client.get("kept") == made
        assert client.submit(a_job("kept"), key="k") == made
        assert client.metrics("kept") == []
        assert client.logs("kept").items == []
        process.send_signal(signal.SIGTERM)
        assert process.wait(20.0) == 0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"EBBTIDE_TOKENS_FILE": ""}, "no tokens file"),
        ({"EBBTIDE_TOKENS_FILE": "/no/such/file"}, "cannot read the tokens file"),
        ({"EBBTIDE_BLOBS_URL": "ftp://x"}, "ftp"),
        ({"EBBTIDE_CLUSTER": ""}, "no objects: set EBBTIDE_CLUSTER"),
        ({"EBBTIDE_PROT": "1"}, "EBBTIDE_PROT is not a setting"),
        ({"EBBTIDE_PORT": "x"}, "EBBTIDE_PORT"),
    ],
)
def test_wrong_settings_end_it_with_one_clear_line(
    tmp_path: Path,
    change: dict[str, str],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([], environment(tmp_path, **change)) == 2
    told = capsys.readouterr().err
    assert words in told.splitlines()[-1]
    assert "Traceback" not in told


def test_a_port_in_use_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert main([], environment(tmp_path, EBBTIDE_PORT=port)) == 2
    told = capsys.readouterr().err
    assert f"cannot listen on 127.0.0.1:{port}" in told.splitlines()[-1]
