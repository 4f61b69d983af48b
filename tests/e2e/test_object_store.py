"""A whole job on a real S3-compatible server: nothing that lasts lies in a folder of this machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.stack import running
from tests.checker.reader import read
from tests.checker.verdict import examine
from tests.e2e.jobs import Material, training
from tests.worlds.s3 import BUCKET, fetch, server, variables

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]


def test_a_job_needs_no_folder_beside_an_object_store(material: Material, tmp_path: Path) -> None:
    folders = {name: tmp_path / name for name in ("s3", "state", "fetched")}
    folders["s3"].mkdir()
    with server(folders["s3"]) as port:
        store = variables(port) | {"EBBTIDE_BLOBS_URL": f"s3://{BUCKET}/lasting"}
        with running(folders["state"], environ=store) as stack:
            job = stack.submit("remote", material.spec(training=training(totalSteps=3)))
            ended = stack.finished(job.name, seconds=400)
            audits = stack.audits
        fetch(port, "lasting", folders["fetched"])
    assert ended.state == "Complete", ended.message
    verdict = examine(read(folders["fetched"], job.metadata.uid, audits))
    assert verdict.faults() == {}
    assert verdict.accepted == 3 * 8 * 4
    assert not (folders["state"] / "blobs").exists()
