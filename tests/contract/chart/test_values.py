"""What helm accepts and refuses, and what each switch changes."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
import yaml

from ebbtide_operator.core.site import Site
from tests.worlds.chart import (
    CASES,
    CHART,
    GOLDEN,
    JOBS,
    PROFILES,
    STORE,
    changes,
    helm,
    rendered,
    template,
    text,
)

pytestmark = pytest.mark.kube

REFUSED = {
    "objectStore.url=": "objectStore.url is not set",
    "objectStore.url=http://x": "none of s3://",
    "objectStore.url=s3://user:secret@bucket/x": "without credentials",
    "objectStore.url=file:///data": "set objectStore.volume.existingClaim",
    "gateway.auth.mode=none": "or say gateway.insecure=true",
    "gateway.insecure=true": "gateway.insecure is for gateway.auth.mode none alone",
    "gateway.auth.mode=tokens": "set gateway.auth.existingSecret",
    "nats.install=false": "set nats.external.url",
    "nats.external.url=nats://x:4222": "set nats.install=false",
    "nats.copies=3": "set nats.replicas=3",
    "valkey.install=false": "set valkey.external.url",
    "valkey.external.url=redis://x": "set valkey.install=false",
    "credentials.create=false": "set credentials.existingSecret",
    "credentials.existingSecret=x": "set credentials.create=false",
    "jobs.sandbox.appArmorProfile=x": "set jobs.sandbox.seccompProfile",
    "jobs.sandbox.installer.enabled=true": "set jobs.sandbox.seccompProfile",
    "jobs.moreNamespaces={x}": "set rbac.scope=cluster",
    "jobs.namespace=ebbtide-system": "set jobs.namespace to another",
    "monitoring.jobFigures.enabled=true": "set monitoring.jobFigures.token.name",
}
ILL_FORMED = (
    "gatewey.replicas=2",
    "gateway.replicsa=2",
    "gateway.replicas=0",
    "gateway.replicas=two",
    "gateway.auth.mode=oidc",
    "nats.replicas=2",
    "images.control.digest=sha256:abc",
    "jobs.namespace=Not_A_Name",
    "jobs.resources.gateway.cpu=1",
    "jobs.sandbox.seccompProfile=/etc/cells.json",
    "jobs.sandbox.seccomp=x",
    "jobs.prices.gpu.perHour=-1",
    "jobs.prices.gpu.perDay=1",
    "jobs.runtimes.large.imagge=x",
    "networkPolicy.apiServerPorts={70000}",
    "uninstall.jobs=forget",
)


def test_the_chart_passes_helms_lint() -> None:
    done = helm("lint", "--strict", str(CHART), "--set", STORE)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(("setting", "fix"), REFUSED.items())
def test_what_contradicts_itself_is_refused_with_the_fix(setting: str, fix: str) -> None:
    done = template(setting)
    assert done.returncode != 0
    assert fix in done.stderr


@pytest.mark.parametrize("setting", ILL_FORMED)
def test_what_the_schema_does_not_know_is_refused(setting: str) -> None:
    done = template(setting)
    assert done.returncode != 0
    assert "values don't meet the specifications of the schema" in done.stderr


def test_the_default_renders_as_committed() -> None:
    committed = (GOLDEN / "default.yaml").read_text("utf-8")
    assert text() == committed, "look at the difference, then: python -m tests.worlds.chart"


@pytest.mark.parametrize("name", [*CASES, *PROFILES])
def test_a_switch_changes_what_is_committed(name: str) -> None:
    committed = (GOLDEN / f"{name}.diff").read_text("utf-8")
    assert committed.strip(), "a switch that changes nothing"
    assert changes(name) == committed, "look at it, then: python -m tests.worlds.chart"


def site_of(objects: list[dict[str, Any]]) -> Site:
    (deployment,) = (
        one
        for one in objects
        if one["kind"] == "Deployment" and one["metadata"]["name"] == "ebbtide-operator"
    )
    env = deployment["spec"]["template"]["spec"]["containers"][0]["env"]
    text = next(e["value"] for e in env if e["name"] == "EBBTIDE_SITE")
    return msgspec.json.decode(text, type=Site)


def test_the_operator_reads_the_site_that_it_is_given() -> None:
    for profile in PROFILES:
        site = site_of(rendered(profile=profile))
        assert site.kubernetes is not None
        assert site.kubernetes.image == "ebbtide/compute:0.1.0"
        assert site.secret_env["decode"]["EBBTIDE_NATS_PASSWORD"] == (
            "ebbtide-credentials/nats-decode"
        )


def test_the_operator_is_told_what_pools_cost() -> None:
    site = site_of(rendered(*CASES["prices"]))
    assert site.prices == {"gpu": {"perHour": 2}}
    assert site.currency == "EUR"


def test_every_secret_that_pods_of_jobs_name_is_in_their_namespace() -> None:
    secrets = {
        (one["metadata"]["namespace"], one["metadata"]["name"]): set(one["data"])
        for one in rendered()
        if one["kind"] == "Secret"
    }
    roles = {f"nats-{r}" for r in ("planner", "prefill", "decode", "reward", "learner")}
    assert secrets[JOBS, "ebbtide-credentials"] == roles | {"valkey"}
    assert secrets["ebbtide-system", "ebbtide-credentials"] == roles | {"valkey", "nats-route"}


def test_the_schema_describes_every_value() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text("utf-8"))
    parts = [schema, *schema["$defs"].values()]
    assert [part["title"] for part in parts if part.get("additionalProperties") is not False] == []
    fields = [field for part in parts for field in part["properties"].values()]
    assert [
        f for f in fields if not {"description", "$ref"} & set(f)
    ] == []  # a part says it itself


def test_the_values_file_holds_the_defaults_of_the_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
    assert values["gateway"]["replicas"] == 2
    assert values["gateway"]["auth"]["mode"] == "kubernetes"
    assert text(*[f"gateway.replicas={values['gateway']['replicas']}"]) == text()
