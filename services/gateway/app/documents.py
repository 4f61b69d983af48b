"""The OpenAPI document: what the routes say of themselves, and the job's schema in it."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from ebbtide.api import ProblemDocument
from ebbtide.spec import RLHFJob
from services.gateway.core.problems import MEDIA_TYPE

DESCRIPTION = """Submit, watch and steer RLHF jobs. The job object is the truth: a job made by
`kubectl` shows up here and the other way round. Errors are RFC 9457 problem documents."""

_REF = "#/components/schemas/{model}"
_EVERYWHERE = (401, 403, 429, 500, 503)
_PROBLEM = {MEDIA_TYPE: {"schema": {"$ref": _REF.format(model="ProblemDocument")}}}

DOCUMENT_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The job, as JSON or YAML of the same shape. metadata.name may be left out.",
        "content": {
            media: {"schema": {"$ref": _REF.format(model="RLHFJob")}}
            for media in ("application/json", "application/yaml")
        },
    }
}


def answers(success: int, model: type[BaseModel] | None, *problems: int) -> dict[int | str, Any]:
    """The `responses` of a route: its success, and the problems it can answer with."""
    found: dict[int | str, Any] = {success: {"description": HTTPStatus(success).phrase}}
    if model is not None:
        found[success]["model"] = model
    for status in (*problems, *_EVERYWHERE):
        found[status] = {"description": HTTPStatus(status).phrase}
        if status != HTTPStatus.NOT_MODIFIED:
            found[status]["content"] = _PROBLEM
    return found


def add(
    router: APIRouter,
    method: str,
    path: str,
    handler: Callable[..., Any],
    responses: dict[int | str, Any],
    **more: Any,
) -> None:
    """Add a route whose operationId is the handler's name; its first response is the success."""
    words = handler.__name__.split("_")
    router.add_api_route(
        path,
        handler,
        methods=[method],
        operation_id=words[0] + "".join(word.capitalize() for word in words[1:]),
        responses=responses,
        status_code=int(next(iter(responses))),
        tags=["jobs"],
        **more,
    )


def also_stream(responses: dict[int | str, Any]) -> dict[int | str, Any]:
    """The same, where `Accept: text/event-stream` gets a stream."""
    stream = {"text/event-stream": {"schema": {"type": "string"}}}
    ended = {"description": "The stream had ended before Last-Event-ID."}
    success = {**responses[200], "content": stream}
    return {**responses, 200: success, 204: ended}


def document(app: FastAPI) -> dict[str, Any]:
    """The whole document, with the job's schema, the problem's and the token's."""
    found = get_openapi(
        title=app.title, version=app.version, description=DESCRIPTION, routes=app.routes
    )
    parts = found.setdefault("components", {})
    schemas = parts.setdefault("schemas", {})
    for model in (RLHFJob, ProblemDocument):
        schemas.update(_schemas(model))
    _free_metadata(schemas)
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    parts["schemas"] = dict(sorted(schemas.items()))
    parts["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    _secure(found["paths"])
    return found


def _schemas(model: type[BaseModel]) -> dict[str, Any]:
    mode = "validation" if model is RLHFJob else "serialization"
    whole = model.model_json_schema(ref_template=_REF, mode=mode)  # type: ignore[arg-type]
    inner: dict[str, Any] = whole.pop("$defs", {})
    return {**inner, model.__name__: whole}


def _free_metadata(schemas: dict[str, Any]) -> None:
    """Over REST the name comes from the idempotency key where metadata gives none."""
    schemas["RLHFJob"]["required"].remove("metadata")
    schemas["ObjectMeta"].pop("required", None)


def _secure(paths: dict[str, Any]) -> None:
    for path, operations in paths.items():
        for operation in operations.values():
            operation["security"] = [{"token": []}] if path.startswith("/v1/") else []
