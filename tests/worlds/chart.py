"""The chart as helm renders it. `python -m tests.worlds.chart` writes tests/golden/chart anew."""

from __future__ import annotations

import difflib
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm/ebbtide"
GOLDEN = ROOT / "tests/golden/chart"
SYSTEM = "ebbtide-system"
JOBS = "ebbtide-jobs"
STORE = "objectStore.url=s3://bucket/ebbtide"
_ALL_MONITORS = (
    "monitoring.serviceMonitor.enabled=true",
    "monitoring.podMonitor.enabled=true",
    "monitoring.jobFigures.enabled=true",
    "monitoring.jobFigures.token.name=scrape",
    "monitoring.rules.enabled=true",
    "monitoring.rules.labels.team=ml",
    "monitoring.dashboards.enabled=true",
    "monitoring.labels.release=prometheus",
)
CASES: dict[str, tuple[str, ...]] = {
    "aggregate-off": ("rbac.aggregate=false",),
    "auth-none": ("gateway.auth.mode=none", "gateway.insecure=true"),
    "auth-tokens": ("gateway.auth.mode=tokens", "gateway.auth.existingSecret=people"),
    "audience": ("gateway.auth.audience=ebbtide",),
    "credentials-existing": ("credentials.create=false", "credentials.existingSecret=passwords"),
    "crds-not-kept": ("crds.keep=false",),
    "crds-off": ("crds.install=false",),
    "dashboards": ("monitoring.dashboards.enabled=true",),
    "digest": ("images.registry=r.example", f"images.control.digest=sha256:{'0' * 64}"),
    "external-servers": (
        "nats.install=false",
        "nats.external.url=nats://nats.nats:4222",
        "valkey.install=false",
        "valkey.external.url=redis://valkey.cache:6380/0",
        "credentials.create=false",
        "credentials.existingSecret=passwords",
    ),
    "job-figures": ("monitoring.jobFigures.enabled=true", "monitoring.jobFigures.token.name=t"),
    "more-namespaces": ("rbac.scope=cluster", "jobs.moreNamespaces={other}"),
    "namespace-off": ("jobs.createNamespace=false",),
    "nats-three": ("nats.replicas=3",),
    "nats-without-volume": ("nats.storage.persistent=false", "nats.syncAlways=false"),
    "network-policies-off": ("networkPolicy.enabled=false",),
    "one-gateway": ("gateway.replicas=1",),
    "pod-monitor": ("monitoring.podMonitor.enabled=true",),
    "rbac-off": ("rbac.create=false",),
    "prices": ("jobs.prices.gpu.perHour=2", "jobs.currency=EUR"),
    "runtimes": ("jobs.runtimes.large.image=r.example/compute:2",),
    "rules": ("monitoring.rules.enabled=true", "monitoring.runbooks=https://x.example/"),
    "sandbox": (
        "jobs.sandbox.seccompProfile=ebbtide/cells.json",
        "jobs.sandbox.runtimeClass=gvisor",
    ),
    "sandbox-installer": (
        "jobs.sandbox.seccompProfile=ebbtide/cells.json",
        "jobs.sandbox.installer.enabled=true",
    ),
    "service-monitor": ("monitoring.serviceMonitor.enabled=true", "monitoring.labels.release=p"),
    "store-secret": ("objectStore.existingSecret=s3", "objectStore.env.AWS_REGION=eu-1"),
    "tests-off": ("tests.enabled=false",),
    "uninstall-deletes": ("uninstall.jobs=delete",),
}
"""Settings beside `STORE`, by the name of their golden file: one for each switch."""
PROFILES = tuple(sorted(path.stem for path in (CHART / "profiles").glob("*.yaml")))
EVERYTHING = (
    *_ALL_MONITORS,
    *CASES["runtimes"],
    "rbac.scope=cluster",
    "nats.replicas=3",
)


@cache
def program() -> str:
    """Where helm is; building it is `make kube-tools`' work and not a test's."""
    script = ROOT / "deploy/kube-tools/helm/build.sh"
    done = subprocess.run([script, "--find"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr.strip()}: run `make kube-tools`"
    return done.stdout.strip()


def helm(*words: str, kubeconfig: str = "/dev/null") -> subprocess.CompletedProcess[str]:
    """What helm says; it reads no configuration of this machine's."""
    env = {"HOME": "/nonexistent", "PATH": "/usr/bin:/bin", "KUBECONFIG": kubeconfig}
    return subprocess.run([program(), *words], capture_output=True, text=True, env=env, check=False)


def template(*settings: str, profile: str = "") -> subprocess.CompletedProcess[str]:
    """`helm template` with these settings, and those of a profile instead of `STORE`."""
    words = ["template", "ebbtide", str(CHART), "--namespace", SYSTEM]
    words += ["--kube-version", "1.34", "--is-upgrade"]
    words += ["--values", str(CHART / f"profiles/{profile}.yaml")] if profile else ["--set", STORE]
    for setting in settings:
        words += ["--set", setting]
    return helm(*words)


@cache
def rendered(*settings: str, profile: str = "") -> list[dict[str, Any]]:
    """The objects, or AssertionError with what helm complains of."""
    done = template(*settings, profile=profile)
    assert done.returncode == 0, done.stderr
    documents = yaml.load_all(done.stdout, yaml.CSafeLoader)
    return [one for one in documents if one]


@cache
def text(*settings: str, profile: str = "") -> str:
    """The same for people: sorted, without what is random or has a source of its own."""
    objects = sorted(rendered(*settings, profile=profile), key=_place)
    return yaml.dump_all(map(_plain, objects), Dumper=yaml.CSafeDumper, width=110)


def _plain(one: dict[str, Any]) -> dict[str, Any]:
    if one["kind"] == "Secret":
        return {**one, "data": dict.fromkeys(one["data"], "made at random")}
    if one["kind"] in ("CustomResourceDefinition", "PrometheusRule"):
        return {**one, "spec": "generated"}
    generated = ("dashboard", "cells")
    if one["kind"] == "ConfigMap" and any(word in one["metadata"]["name"] for word in generated):
        return {**one, "data": dict.fromkeys(one["data"], "generated")}
    return one


def _place(one: dict[str, Any]) -> tuple[str, str, str]:
    meta = one["metadata"]
    return one["kind"], meta.get("namespace", ""), meta["name"]


def changes(name: str) -> str:
    """What a case or a profile renders otherwise than the default does."""
    other = text(profile=name) if name in PROFILES else text(*CASES[name])
    lines = difflib.unified_diff(
        text().splitlines(), other.splitlines(), "default", name, lineterm="", n=1
    )
    return "\n".join(lines) + "\n"


def golden() -> dict[str, str]:
    """Content of every golden file by its name."""
    found = {f"{name}.diff": changes(name) for name in (*CASES, *PROFILES)}
    return {"default.yaml": text(), **found}


if __name__ == "__main__":
    GOLDEN.mkdir(parents=True, exist_ok=True)
    for file in GOLDEN.iterdir():
        file.unlink()
    for file_name, content in golden().items():
        (GOLDEN / file_name).write_text(content, "utf-8")
