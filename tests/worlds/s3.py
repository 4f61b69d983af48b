"""A real S3-compatible server (SeaweedFS) with one bucket, and the variables that lead there."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from ebbtide.adapters.daemon import free_port

BUCKET = "ebbtide"
_KEY, _SECRET = "tester", "not-a-secret-of-anybody"
_START_SECONDS = 120.0
_GRPC = 10_000
"""Each port has a second one so much higher, unless it is given."""


def variables(port: int, *, secret: str = _SECRET) -> dict[str, str]:
    """What a process that uses the store has in its environment."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": _KEY,
        "AWS_SECRET_ACCESS_KEY": secret,
    }


@contextmanager
def server(folder: Path) -> Iterator[int]:
    """Start it, make the bucket, end it again; gives its port."""
    ports = {name: free_port() for name in ("master", "volume", "filer", "s3")}
    person = {"name": _KEY, "credentials": [{"accessKey": _KEY, "secretKey": _SECRET}]}
    (folder / "s3.json").write_text(json.dumps({"identities": [person | {"actions": ["Admin"]}]}))
    flags = [f"-{name}.port={port}" for name, port in ports.items()]
    flags += [f"-{name}.port.grpc={free_port()}" for name in ports]
    weed = str(Path(sys.executable).with_name("weed"))
    command = [weed, "server", f"-dir={folder}", "-ip=127.0.0.1"]
    command += ["-s3", f"-s3.config={folder}/s3.json", *flags, "-volume.max=8"]
    command += ["-master.volumeSizeLimitMB=64", "-master.telemetry=false"]
    command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]
    with (folder / "weed.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={"HOME": str(folder)})
        try:
            _await_bucket(ports["s3"], process, folder)
            yield ports["s3"]
        finally:
            process.kill()
            process.wait()


def _await_bucket(port: int, process: subprocess.Popen[bytes], folder: Path) -> None:
    """Make the bucket as soon as the server takes it."""
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until and process.poll() is None:
        with suppress(BaseError, OSError):
            _make_bucket(port)
            return
        time.sleep(0.3)
    raise AssertionError(f"no S3 server: {(folder / 'weed.log').read_text()[-2000:]}")


def fetch(port: int, prefix: str, folder: Path) -> None:
    """Copy all objects below a prefix into files."""
    store = _open(port)
    for page in obstore.list(store, prefix):
        for meta in page:
            file = folder / str(meta["path"]).removeprefix(f"{prefix}/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(bytes(obstore.get(store, meta["path"]).bytes()))


def _make_bucket(port: int) -> None:
    """The first object makes it."""
    obstore.put(_open(port), "made", b"")


def _open(port: int) -> S3Store:
    given = {k.removeprefix("AWS_").lower(): v for k, v in variables(port).items()}
    config: Any = {"endpoint": given.pop("endpoint_url"), **given}
    config.pop("allow_http")
    return S3Store(
        BUCKET,
        config=config,
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
