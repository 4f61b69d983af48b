"""What users get wrong: a clear error each time, nothing lost, and never a traceback."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from benchmarks.stack import ROOT, Stack, environment
from ebbtide.client import ApiError
from tests.e2e.jobs import Material, Spec, judged, training

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]


def refused(stack: Stack, spec: Spec) -> dict[str, str]:
    """Pointer and detail of each fault that the API names."""
    with pytest.raises(ApiError) as caught:
        stack.submit("wrong", spec)
    assert caught.value.status == 422
    return {error.pointer: error.detail for error in caught.value.problem.errors}


def cli(stack: Stack, *arguments: str) -> subprocess.CompletedProcess[str]:
    token = Path(stack.up.token_file).read_text().strip()
    done = subprocess.run(
        [sys.executable, "-m", "ebbtide.cli", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=environment() | {"EBBTIDE_URL": stack.up.url, "EBBTIDE_TOKEN": token},
        check=False,
    )
    assert "Traceback" not in done.stdout + done.stderr
    return done


def test_a_malformed_job_file_is_refused(stack: Stack, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("kind: [RLHFJob\nspec: {")
    done = cli(stack, "submit", str(tmp_path / "job.yaml"))
    assert done.returncode != 0
    assert "job.yaml" in done.stderr


def test_an_unknown_field_is_named(stack: Stack, material: Material) -> None:
    faults = refused(stack, material.spec(training=training(totalStep=3)))
    assert "/spec/training/totalStep" in faults


def test_a_missing_model_is_named(stack: Stack, material: Material) -> None:
    faults = refused(stack, material.spec(model={"uri": "/nowhere/model"}))
    assert any("/nowhere/model" in detail for detail in faults.values())


def ended(stack: Stack, name: str, spec: Spec) -> Any:
    job = stack.submit(name, spec)
    return stack.finished(job.name, seconds=300)


def dataset(path: Path, limit: int = 32) -> dict[str, Any]:
    return {"train": {"type": "jsonl", "uri": str(path)}, "maxPromptTokens": limit}


def test_an_empty_dataset_is_named(stack: Stack, material: Material, tmp_path: Path) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    faults = refused(stack, material.spec(dataset=dataset(tmp_path / "empty.jsonl")))
    assert "empty.jsonl" in faults["/spec/dataset/train/uri"]


def test_prompts_beyond_the_limit_are_left_out_and_reported(
    stack: Stack, material: Material, tmp_path: Path
) -> None:
    rows = [{"prompt": "abc", "answer": "a"}] * 8 + [{"prompt": "x" * 200, "answer": "a"}]
    (tmp_path / "long.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    short = training(totalSteps=1, promptsPerStep=4)
    job = ended(
        stack, "long", material.spec(dataset=dataset(tmp_path / "long.jsonl"), training=short)
    )
    assert job.state == "Complete"
    assert "1" in json.dumps(job.status.get("dataset", job.status))


def broken(name: str) -> Spec:
    """Only what hangs meets its limit, and does so soon."""
    component = {"type": "function", "name": "broken", "entryPoint": f"tests.e2e.faulty:{name}"}
    return {
        "components": [component],
        "timeoutSeconds": 0.3 if name == "hangs" else 60.0,
        "workers": 2,
        "breakerErrors": 1000,
    }


@pytest.mark.parametrize(
    ("name", "state", "why"),
    [
        ("raises", "Failed", "the verifier is broken"),
        ("not_a_number", "Failed", "nan, not a finite number"),
        ("hangs", "Complete", ""),
    ],
)
def test_a_broken_reward_loses_no_sample(
    stack: Stack, material: Material, name: str, state: str, why: str
) -> None:
    spec = material.spec(reward=broken(name), training=training(totalSteps=1, promptsPerStep=2))
    job = ended(stack, f"reward-{name.replace('_', '-')}", spec)
    assert job.state == state
    assert why in job.message
    assert "Traceback" not in job.message
    verdict = judged(stack, job.metadata.uid)
    assert verdict.faults() == {}
    assert verdict.accepted == 8


def test_a_wrong_token_is_refused(stack: Stack) -> None:
    headers = {"Authorization": "Bearer wrong"}
    answer = httpx.get(f"{stack.up.url}/v1/jobs", headers=headers, timeout=60)
    assert answer.status_code == 401
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_huge_body_is_refused(stack: Stack) -> None:
    token = Path(stack.up.token_file).read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    body = b'{"x": "' + b"y" * (64 << 20) + b'"}'
    answer = httpx.post(f"{stack.up.url}/v1/jobs", headers=headers, content=body, timeout=120)
    assert answer.status_code == 413
    assert answer.headers["content-type"] == "application/problem+json"


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "ebbtide.cli",
                "up",
                "--port",
                port,
                "--state-dir",
                str(tmp_path),
            ],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=environment(),
            check=False,
        )
    assert done.returncode != 0
    assert port in done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_full_disk_for_checkpoints_fails_the_job_with_its_reason(
    stack: Stack, material: Material
) -> None:
    short = training(totalSteps=2, promptsPerStep=4)
    spec = material.spec(checkpoint={"everySteps": 1}, training=short, suspend=True)
    job = stack.submit("full", spec)
    folder = stack.blobs / "jobs" / job.metadata.uid / "attempts" / "0001" / "checkpoints"
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("may not mount a file system here")
    try:
        stack.client.resume(job.name)
        failed = stack.finished(job.name, seconds=300)
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=False)
    assert failed.state == "Failed"
    assert "no space left" in failed.message.lower()
    assert "Traceback" not in failed.message
    assert judged(stack, job.metadata.uid).faults() == {}
