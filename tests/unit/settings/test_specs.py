"""A spec that a process cannot read: one line that names the field, and the code of a refusal."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from ebbtide.exits import EXIT_REFUSED

ENVIRON = {
    "PYTHONPATH": ":".join(sys.path),
    "EBBTIDE_BLOBS_URL": "memory:///",
    "EBBTIDE_JOB": "job",
    "EBBTIDE_JOB_UID": "uid",
    "EBBTIDE_SPEC": '{"modus": "later"}',
    "EBBTIDE_LOG_MIB": "0",
}


@pytest.mark.parametrize("role", ["planner", "decode", "prefill"])
def test_a_spec_of_another_version_is_refused_in_one_line(role: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", f"services.{role}"],
        capture_output=True,
        text=True,
        env=ENVIRON,
        check=False,
    )
    assert done.returncode == EXIT_REFUSED
    assert "Traceback" not in done.stderr
    why = json.loads(done.stderr.splitlines()[-1])["why"]
    assert why.startswith("not a job's spec: /spec/")
