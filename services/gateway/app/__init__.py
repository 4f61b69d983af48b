"""The gateway's shell: wires routes to the ports and puts the edge around them."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from fastapi import FastAPI
from prometheus_client import CollectorRegistry
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp

from ebbtide import gpus
from ebbtide.errors import EbbtideError
from ebbtide.logs import Log
from ebbtide.metrics import render
from ebbtide.ports import Blobs, Clock, Cluster, Trials
from services.gateway.app import documents, preflight, problems
from services.gateway.app.artifacts import ArtifactRoutes
from services.gateway.app.costs import CostRoutes
from services.gateway.app.doors import Door
from services.gateway.app.edge import BodyLimit, Figures, Gate, Outer
from services.gateway.app.estimates import Estimates
from services.gateway.app.events import EventRoutes
from services.gateway.app.figures import FigureRoutes
from services.gateway.app.held import HeldTime
from services.gateway.app.histories import Histories
from services.gateway.app.jobs import JobRoutes
from services.gateway.app.logs import LogRoutes
from services.gateway.app.parts import KIND, Parts
from services.gateway.app.slices import SliceRoutes
from services.gateway.app.spendings import SpendingRoutes
from services.gateway.app.sse import Streams
from services.gateway.app.tallies import Tallies
from services.gateway.app.ui import Api, UiRoutes
from services.gateway.core.limits import Buckets
from services.gateway.settings import GatewaySettings

VERSION = "1"
_READY_SECONDS = 5.0


def build(
    *,
    settings: GatewaySettings,
    cluster: Cluster,
    blobs: Blobs,
    clock: Clock,
    registry: CollectorRegistry,
    log: Log,
    door: Door,
    closing: asyncio.Event,
    trials: Trials | None = None,
) -> ASGIApp:
    """The whole application. `door`: who is let in; `trials`: where pods are tried out."""
    parts = Parts(
        settings=settings,
        cluster=cluster,
        blobs=blobs,
        clock=clock,
        closing=closing,
        trials=trials,
    )
    inner = routes(parts, registry)
    buckets = Buckets(rate=settings.rate_per_second, burst=settings.rate_burst)
    limited = BodyLimit(inner, limit=settings.max_body_bytes)
    gated = Gate(limited, door=door, buckets=buckets, clock=clock)
    return Outer(gated, figures=Figures(registry), clock=clock, log=log)


def routes(parts: Parts, registry: CollectorRegistry) -> FastAPI:
    """The routes without the edge: what the OpenAPI document describes."""
    app = FastAPI(
        title="ebbtide", version=VERSION, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    streams = Streams(parts.settings.max_streams)
    here = gpus.count() if parts.settings.runs_here else None
    look = partial(
        preflight.look,
        paths=parts.settings.check_paths,
        gpus=here,
        programs=parts.settings.programs,
    )
    # Installed one by one on the app's own router: a nested router hides its routes' methods.
    histories, tallies = Histories(blobs=parts.blobs), Tallies(blobs=parts.blobs)
    held = HeldTime(blobs=parts.blobs)
    estimates = Estimates(parts=parts, tallies=tallies)
    jobs = JobRoutes(parts=parts, preflight=look, estimates=estimates)
    events = EventRoutes(parts=parts, streams=streams)
    artifacts = ArtifactRoutes(parts=parts, histories=histories)
    costs = CostRoutes(parts=parts, histories=histories, tallies=tallies, held=held)
    spendings = SpendingRoutes(parts=parts, histories=histories, held=held)
    slices = SliceRoutes(parts=parts, histories=histories)
    pages = UiRoutes(
        api=Api(jobs=jobs, artifacts=artifacts, costs=costs, events=events, slices=slices)
    )
    logs = LogRoutes(parts=parts, streams=streams)
    figures = FigureRoutes(parts=parts, histories=histories, tallies=tallies, held=held)
    for group in (jobs, events, logs, artifacts, slices, costs, spendings, figures, pages):
        group.install(app.router)
    _add_probes(app, parts, registry)
    problems.install(app)
    described: dict[str, Any] = {}

    def openapi() -> dict[str, Any]:
        if not described:
            described.update(documents.document(app))
        return described

    app.openapi = openapi  # type: ignore[method-assign] # FastAPI's own way to extend it
    return app


def _add_probes(app: FastAPI, parts: Parts, registry: CollectorRegistry) -> None:
    async def healthz() -> Response:
        """The process turns."""
        return JSONResponse({"ok": True})

    async def readyz() -> Response:
        """The object store answers and the process is not draining."""
        complaint = "draining" if parts.closing.is_set() else await _complaint(parts)
        return JSONResponse(
            {"ok": not complaint, "complaint": complaint}, status_code=503 if complaint else 200
        )

    async def metrics() -> Response:
        """Prometheus metrics of this process."""
        body, media_type = render(registry)
        return Response(body, headers={"Content-Type": media_type})

    app.add_api_route("/healthz", healthz, methods=["GET"], include_in_schema=False)
    app.add_api_route("/readyz", readyz, methods=["GET"], include_in_schema=False)
    app.add_api_route("/metrics", metrics, methods=["GET"], include_in_schema=False)


async def _complaint(parts: Parts) -> str:
    try:
        async with asyncio.timeout(_READY_SECONDS):
            await parts.cluster.list(KIND, parts.settings.namespace, {"none": "none"})
    except (EbbtideError, TimeoutError) as error:
        return f"the object store does not answer: {error or 'no answer in time'}"
    return ""
