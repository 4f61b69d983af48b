"""The end of an installation: it leaves what `keep` says and nothing else."""

from __future__ import annotations

import pytest

from ebbtide.client import Client
from tests.cluster.running import submit, tiny
from tests.worlds.chart import JOBS, SYSTEM
from tests.worlds.cluster import RELEASE, Cluster, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]


def test_uninstalling_ends_jobs_and_leaves_what_is_kept(installed: Cluster, client: Client) -> None:
    submit(client, "last", tiny())
    until(lambda: installed.pods("last"), seconds=180, what="pods")
    installed.helm("uninstall", RELEASE, "-n", SYSTEM, "--wait", "--timeout", "5m")
    assert installed.objects("rlhf") == []
    until(lambda: not installed.objects("pods", JOBS), seconds=180, what="no pods of jobs")
    until(lambda: not installed.objects("pods", SYSTEM), seconds=180, what="no pods of the release")
    left = installed.kubectl(
        "get", "all,cm,role,rolebinding,netpol,sa,pdb", "-n", SYSTEM, "-o", "name"
    )
    kept = {"configmap/kube-root-ca.crt", "serviceaccount/default"}
    assert set(left.split()) == kept
    assert installed.get("secret", "ebbtide-credentials", SYSTEM)
    assert installed.objects("crd", SYSTEM)
