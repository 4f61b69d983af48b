"""Opens what the gateway needs, listens, serves until the process drains."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import uvicorn
from prometheus_client import CollectorRegistry

from ebbtide import rights
from ebbtide.adapters.blobs import open_blobs
from ebbtide.adapters.clock import SystemClock
from ebbtide.adapters.clusters import is_kubernetes, open_objects
from ebbtide.errors import Refused
from ebbtide.ports import Clock, Cluster, Trials
from ebbtide.runtime import Body, Process
from ebbtide.tokens import Known, parse
from services.gateway.app import build, routes
from services.gateway.app.doors import Door, KubernetesDoor, TokenDoor
from services.gateway.app.parts import Parts
from services.gateway.app.people import Issuer, People
from services.gateway.settings import GatewaySettings

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_BACKLOG = 512
_ISSUER_SECONDS = 5.0
_GRACE_SECONDS = 5


def body(*, settings: GatewaySettings) -> Body:
    """What `ebbtide.runtime` runs."""

    async def work(process: Process) -> None:
        known = load_keys(settings) if settings.auth == "kubernetes" else load_tokens(settings)
        with listening(settings.host, settings.port) as sock:
            async with (
                _opened(settings, SystemClock()) as cluster,
                httpx.AsyncClient(timeout=_ISSUER_SECONDS) as http,
            ):
                app = build(
                    settings=settings,
                    cluster=cluster,
                    blobs=open_blobs(
                        settings.blobs_url,
                        cache=settings.blobs_cache,
                        writable=rights.blob_writes("gateway", ""),
                    ),
                    clock=SystemClock(),
                    registry=process.registry,
                    log=process.log,
                    door=_door(settings, cluster, known, http),
                    closing=process.drain,
                    trials=_trials(settings, cluster),
                )
                host, port = sock.getsockname()[:2]
                process.log.info("gateway listens", url=f"http://{host}:{port}")
                process.health.ready = True
                await serve(app, sock, process.drain)

    return work


def _door(
    settings: GatewaySettings,
    cluster: Cluster,
    known: Sequence[Known] | None,
    http: httpx.AsyncClient,
) -> Door:
    if settings.auth == "tokens":
        return TokenDoor(known)
    from ebbtide.adapters.cluster_kubernetes import (  # noqa: PLC0415 - not every machine has it
        ApiReviews,
        KubernetesCluster,
    )

    if not isinstance(cluster, KubernetesCluster):
        detail = "auth kubernetes asks the API server: set EBBTIDE_CLUSTER=kubernetes"
        raise Refused(detail, field="EBBTIDE_AUTH")
    reviews = ApiReviews(api=cluster.api, clock=SystemClock(), audience=settings.audience)
    people = People(reviews=reviews, keys=known or (), issuer=_issuer(settings, http))
    return KubernetesDoor(reviews=people, namespace=settings.namespace)


def _trials(settings: GatewaySettings, cluster: Cluster) -> Trials | None:
    """Templates are tried out where pods are the API server's."""
    if not is_kubernetes(settings.cluster):
        return None
    from ebbtide.adapters.cluster_kubernetes import (  # noqa: PLC0415 - not every machine has it
        ApiTrials,
        KubernetesCluster,
    )

    return ApiTrials(api=cluster.api) if isinstance(cluster, KubernetesCluster) else None


def _issuer(settings: GatewaySettings, http: httpx.AsyncClient) -> Issuer | None:
    if not settings.oidc_issuer:
        return None
    for url, field in ((settings.oidc_issuer, "ISSUER"), (settings.oidc_audience, "AUDIENCE")):
        if not url or (field == "ISSUER" and not url.startswith("https://")):
            detail = "tokens are checked against an https issuer and for an audience: give both"
            raise Refused(detail, field=f"EBBTIDE_OIDC_{field}")
    from ebbtide.adapters.oidc import OidcIssuer  # noqa: PLC0415 - only where it is wanted

    return OidcIssuer(
        url=settings.oidc_issuer,
        audience=settings.oidc_audience,
        http=http,
        clock=SystemClock(),
        prefix=settings.oidc_prefix,
    )


def load_keys(settings: GatewaySettings) -> Sequence[Known]:
    """API keys that are let in beside the API server's tokens; none without a file."""
    return load_tokens(settings) or () if settings.tokens_file else ()


def load_tokens(settings: GatewaySettings) -> Sequence[Known] | None:
    """Accepted tokens; None when everybody is to be served. Raises Refused without either."""
    if settings.insecure:
        return None
    if not settings.tokens_file:
        detail = "no tokens file: set EBBTIDE_TOKENS_FILE, or EBBTIDE_INSECURE=true to do without"
        raise Refused(detail, field="EBBTIDE_TOKENS_FILE")
    try:
        known = parse(Path(settings.tokens_file).read_text("utf-8"))
    except OSError as error:
        detail = f"cannot read the tokens file {settings.tokens_file}: {error.strerror}"
        raise Refused(detail, field="EBBTIDE_TOKENS_FILE") from None
    if not known:
        raise Refused("the tokens file names no token", field="EBBTIDE_TOKENS_FILE")
    return known


@contextmanager
def listening(host: str, port: int) -> Iterator[socket.socket]:
    """A bound socket; raises Refused where the port is taken."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((host, port))
            sock.listen(_BACKLOG)
        except OSError as error:
            detail = f"cannot listen on {host}:{port}: {error.strerror}; set EBBTIDE_PORT"
            raise Refused(detail, field="EBBTIDE_PORT") from None
        yield sock


def _opened(settings: GatewaySettings, clock: Clock) -> AbstractAsyncContextManager[Cluster]:
    if not settings.cluster:
        detail = "no objects: set EBBTIDE_CLUSTER to the path of their SQLite file, or kubernetes"
        raise Refused(detail, field="EBBTIDE_CLUSTER")
    return open_objects(settings.cluster, clock=clock, manager="ebbtide-gateway")


class _Server(uvicorn.Server):
    """uvicorn without its signal handlers: signals are `ebbtide.runtime`'s."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(app: ASGIApp, sock: socket.socket, drain: asyncio.Event) -> None:
    """Serve `app` on `sock` until `drain` is set; open streams end then."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_GRACE_SECONDS,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[sock]), name="uvicorn")
    draining = asyncio.create_task(drain.wait(), name="drain")
    await asyncio.wait({serving, draining}, return_when=asyncio.FIRST_COMPLETED)
    server.should_exit = True
    draining.cancel()
    await serving


def openapi() -> str:
    """The OpenAPI document as it is committed: routes alone, nothing opened."""
    absent: Any = None  # describing routes touches no collaborator
    parts = Parts(
        settings=GatewaySettings(blobs_url="memory:///"),
        cluster=absent,
        blobs=absent,
        clock=absent,
        closing=absent,
    )
    described = routes(parts, CollectorRegistry()).openapi()
    return json.dumps(described, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
