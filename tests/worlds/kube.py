"""A real API server with etcd and the garbage collector, and what tests do to it.

No kubelet and no scheduler: a test plays them. One control plane serves a whole run of tests, and
each test has a namespace of its own.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from ssl import SSLContext, create_default_context
from typing import Any

import yaml

from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.cluster_kubernetes import KINDS, Kind, KubernetesCluster, open_kubernetes
from ebbtide.adapters.cluster_kubernetes.forms import Render
from ebbtide.adapters.daemon import free_port

ROOT = Path(__file__).parents[2]
CRDS = ROOT / "operator/ebbtide_operator/crds"
START_SECONDS = 180.0
ADMIN = "admin-token"
_GROUP = "test.ebbtide.dev"
THINGS = {
    **KINDS,
    "Thing": Kind(f"{_GROUP}/v1", "things"),
    "Other": Kind(f"{_GROUP}/v1", "others"),
}
"""With kinds whose spec and status may hold anything."""


def open_definition(kind: str, *, group: str = _GROUP, version: str = "v1") -> dict[str, Any]:
    """A definition whose objects may hold anything."""
    names = {"kind": kind, "plural": f"{kind.lower()}s", "singular": kind.lower()}
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    schema = {"type": "object", "properties": {"spec": anything, "status": anything}}
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [served]},
    }


def tools() -> Path:
    """Folder of the programs; building them is `make kube-tools`' work and not a test's."""
    script = ROOT / "deploy/kube-tools/build.sh"
    done = subprocess.run([script, "--find"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stderr.strip()}: run `make kube-tools`"
    return Path(done.stdout.strip())


class Answer(Exception):
    """The API server refused: its code, reason and message."""

    def __init__(self, code: int, body: bytes) -> None:
        try:
            status = json.loads(body)
        except ValueError:
            status = {"message": body.decode("utf-8", "replace")}
        self.code, self.reason = code, status.get("reason", "")
        self.message = str(status.get("message", ""))
        super().__init__(f"{code} {self.reason}: {self.message}")


class ControlPlane:
    """One running control plane."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder, self.url = folder, f"https://127.0.0.1:{port}"
        self._namespaces = 0
        self._tls: SSLContext | None = None

    # --- raw access: what kubectl, kubelets and people do ----------------------------------------

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        token: str = ADMIN,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Any:
        """JSON of the answer; raises Answer."""
        if self._tls is None:
            self._tls = create_default_context(cafile=str(self.ca))
        data = None if body is None else json.dumps(body).encode()
        headers = {
            "Authorization": f"Bearer {token}",
            "Content-Type": content_type,
            "Accept": accept,
        }
        request = urllib.request.Request(  # noqa: S310 - our own server
            self.url + path, data=data, method=method, headers=headers
        )
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=self._tls), urllib.request.ProxyHandler({})
        )
        try:
            with opener.open(request, timeout=30) as answer:
                content = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                raise Answer(error.code, error.read()) from None
        return json.loads(content) if content[:1] in (b"{", b"[") else content

    def merge(self, path: str, body: Any, **more: Any) -> Any:
        """Merge patch."""
        return self.call("PATCH", path, body, content_type="application/merge-patch+json", **more)

    def apply(self, document: dict[str, Any]) -> None:
        """Make an object that may be there already (of the kinds that tests install)."""
        version, kind = document["apiVersion"], document["kind"]
        plural = f"{kind[:-1]}ies".lower() if kind.endswith("y") else f"{kind}s".lower()
        place = document["metadata"].get("namespace")
        parts = ["/apis" if "/" in version else "/api", version]
        parts += ["namespaces", place] if place else []
        try:
            self.call("POST", "/".join([*parts, plural]), document)
        except Answer as answer:
            if answer.reason != "AlreadyExists":
                raise

    def namespace(self) -> str:
        """A new one."""
        self._namespaces += 1
        name = f"t{os.getpid()}-{self._namespaces}"
        self.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        return name

    def token(self, namespace: str, account: str) -> str:
        """A token of a service account, as a pod would have it."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
        return str(self.call("POST", path, asked)["status"]["token"])

    def kubectl(self, *words: str, stdin: str | None = None, token: str = ADMIN) -> str:
        """What kubectl prints; raises AssertionError with what it complains of."""
        command = [str(tools() / "kubectl"), f"--kubeconfig={self.kubeconfig(token)}", *words]
        env = {"HOME": str(self.folder), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, check=False, env=env
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    # --- for programs ------------------------------------------------------------------------------

    @property
    def ca(self) -> Path:
        """The certificate that signs the server's."""
        return self.folder / "certs" / "apiserver.crt"

    def kubeconfig(self, token: str = ADMIN, *, url: str = "") -> Path:
        """A file that leads here as whoever has `token`; `url`: by a way of the test's own."""
        name = str(abs(hash((token, url))))
        path = self.folder / f"kubeconfig-{name}"
        server = {"server": url or self.url, "certificate-authority": str(self.ca)}
        document = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "test",
            "clusters": [{"name": "test", "cluster": server}],
            "users": [{"name": "test", "user": {"token": token}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        }
        fresh = path.with_suffix(".new")
        fresh.write_text(yaml.safe_dump(document))
        fresh.replace(path)  # a program that has just been started may be reading it
        return path

    @asynccontextmanager
    async def cluster(
        self,
        *,
        token: str = ADMIN,
        manager: str = "test",
        render: Render | None = None,
        url: str = "",
    ) -> AsyncIterator[KubernetesCluster]:
        """The port, as whoever has `token`."""
        async with open_kubernetes(
            manager=manager,
            clock=SystemClock(),
            kubeconfig=str(self.kubeconfig(token, url=url)),
            render=render,
            kinds=THINGS,
        ) as cluster:
            yield cluster


@contextmanager
def control_plane(
    folder: Path, *, flags: Sequence[str] = (), environ: Mapping[str, str] | None = None
) -> Iterator[ControlPlane]:
    """Start the three programs, install the definitions, end them again.

    `flags`: more of them for the API server; `environ`: for its environment.
    """
    with ExitStack() as stack:
        etcd = _start_etcd(folder, stack)
        port = _start_server(folder, etcd, flags, environ or {}, stack)
        plane = ControlPlane(folder, port)
        _await(lambda: plane.call("GET", "/readyz") == b"ok", "the API server", folder)
        documents = [open_definition("Thing"), open_definition("Other")]
        documents += [yaml.safe_load(path.read_text()) for path in CRDS.glob("*.yaml")]
        for document in documents:
            plane.apply(document)
        for document in documents:
            name = document["metadata"]["name"]
            _await(lambda name=name: _established(plane, name), name, folder)
        _start_collector(plane, stack)  # which follows the kinds that are there when it starts
        for name in ("default", "other"):
            plane.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        yield plane


def _established(plane: ControlPlane, name: str) -> bool:
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
    conditions = plane.call("GET", path).get("status", {}).get("conditions") or ()
    return any(c["type"] == "Established" and c["status"] == "True" for c in conditions)


def _start_etcd(folder: Path, stack: ExitStack) -> str:
    client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
    start(
        folder,
        stack,
        "etcd",
        f"--data-dir={folder}/etcd",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",
        "--log-level=error",
    )
    return client


def _start_server(
    folder: Path, etcd: str, flags: Sequence[str], environ: Mapping[str, str], stack: ExitStack
) -> int:
    key, tokens = folder / "accounts.key", folder / "tokens.csv"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    tokens.write_text(f'{ADMIN},admin,admin,"system:masters"\n')
    port = free_port()
    start(
        folder,
        stack,
        "kube-apiserver",
        f"--etcd-servers={etcd}",
        f"--cert-dir={folder}/certs",
        f"--secure-port={port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        "--service-cluster-ip-range=10.96.0.0/16",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        "--disable-admission-plugins=ServiceAccount",
        "--enable-priority-and-fairness=false",
        "--feature-gates=MutatingAdmissionPolicy=true",  # tests play controllers with webhooks
        "--runtime-config=admissionregistration.k8s.io/v1beta1=true",
        *flags,
        environ=environ,
    )
    return port


def _start_collector(plane: ControlPlane, stack: ExitStack) -> None:
    start(
        plane.folder,
        stack,
        "kube-controller-manager",
        f"--kubeconfig={plane.kubeconfig()}",
        "--controllers=garbage-collector-controller,clusterrole-aggregation-controller",
        "--leader-elect=false",
        "--secure-port=0",
    )


def start(
    folder: Path,
    stack: ExitStack,
    program: str,
    *flags: str,
    environ: Mapping[str, str] | None = None,
) -> None:
    """Run a program until `stack` ends it; `program`: one of the tools, or a path."""
    name = Path(program).name
    log = stack.enter_context((folder / f"{name}.log").open("wb"))
    env = {"PATH": "/usr/bin:/bin", "GOMAXPROCS": "2", "HOME": str(folder), **(environ or {})}
    process = subprocess.Popen(
        [tools() / program, *flags],
        stdout=log,
        stderr=subprocess.STDOUT,
        env=env,
        preexec_fn=_end_with_parent,  # noqa: PLW1509 - it takes no lock
    )
    stack.callback(_end, process)


def _end_with_parent() -> None:
    """In the child: the kernel ends it when the tests end, even by SIGKILL (prctl, Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, int(signal.SIGTERM))


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _await(holds: Any, what: str, folder: Path) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        with suppress(OSError, Answer):
            if holds():
                return
        time.sleep(0.1)
    logs = {path.name: path.read_text()[-2000:] for path in folder.glob("*.log")}
    raise AssertionError(f"{what} is not ready: {logs}")
