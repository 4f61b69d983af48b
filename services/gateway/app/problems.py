"""Turns every error into a problem document."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Match

from ebbtide.errors import EbbtideError
from ebbtide.spec.check import Fault
from services.gateway.core import problems
from services.gateway.core.problems import Problem


def respond(problem: Problem, request: Request) -> Response:
    """The answer that carries `problem`."""
    request_id = str(request.scope.get("state", {}).get("request_id", ""))
    body = problems.document(problem, instance=request.url.path, request_id=request_id)
    headers = dict(problem.headers)
    if problem.kind == "unauthorized":
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(
        body, status_code=problem.status, headers=headers, media_type=problems.MEDIA_TYPE
    )


def install(app: FastAPI) -> None:
    """Handle every exception that a route can raise."""
    app.add_exception_handler(Problem, _on_problem)
    app.add_exception_handler(EbbtideError, _on_error)
    app.add_exception_handler(HTTPException, _on_framework)
    app.add_exception_handler(RequestValidationError, _on_parameters)
    app.add_exception_handler(Exception, _on_bug)


async def _on_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, Problem)
    return respond(error, request)


async def _on_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, EbbtideError)
    return respond(problems.from_error(error), request)


async def _on_framework(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    found = problems.from_status(error.status_code, str(error.detail))
    headers = {"Allow": _allowed(request)} if found.kind == "method-not-allowed" else {}
    return respond(Problem(found.kind, found.detail, headers=headers), request)


def _allowed(request: Request) -> str:
    """Methods of every route of this path: the framework names those of the first one alone."""
    matching = (r for r in request.app.routes if r.matches(request.scope)[0] is not Match.NONE)
    return ", ".join(sorted({method for route in matching for method in route.methods or ()}))


async def _on_parameters(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    faults = [_fault(item) for item in error.errors()]
    return respond(Problem("invalid", "Parameters are not valid.", errors=faults), request)


async def _on_bug(request: Request, _: Exception) -> Response:
    detail = "The request id names the log line that says more."
    return respond(Problem("internal", detail), request)


def _fault(item: Any) -> Fault:
    return Fault("/" + "/".join(str(part) for part in item["loc"]), str(item["msg"]))
