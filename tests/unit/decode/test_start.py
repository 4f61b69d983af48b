"""How an actor starts, and how it does not."""

from __future__ import annotations

import os
import subprocess
import sys

CLEAN = {key: value for key, value in os.environ.items() if not key.startswith("EBBTIDE_")}


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        env={**CLEAN, "EBBTIDE_BLOBS_URL": "memory:///", "EBBTIDE_JOB": "job"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_an_actor_of_the_emulated_engine_needs_no_torch() -> None:
    said = python(
        "-c",
        "import sys, services.decode.app.body, services.decode.engine\n"
        "print({'torch', 'transformers'} & set(sys.modules))",
    )
    assert said.stdout.strip() == "set()", said.stderr


def test_a_missing_setting_ends_it_with_one_line_that_names_it() -> None:
    said = python("-m", "services.decode")
    assert said.returncode == 2
    assert "EBBTIDE_JOB_UID is not set" in said.stderr
    assert len(said.stderr.splitlines()) == 1
