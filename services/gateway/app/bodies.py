"""Reads a submitted job from a request, as JSON or YAML by its content type."""

from __future__ import annotations

from typing import Any

from fastapi import Request

from ebbtide.documents import JSON_TYPES, YAML_TYPES, parse
from ebbtide.errors import Refused
from services.gateway.core.problems import Problem


async def read_document(request: Request) -> Any:
    """Plain values of the body; a problem where it cannot be read."""
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in (*JSON_TYPES, *YAML_TYPES):
        detail = "Send the job as application/json or application/yaml."
        headers = {"Accept-Post": "application/json, application/yaml"}
        raise Problem("unsupported-media-type", detail, headers=headers)
    try:
        return parse(await request.body(), media_type)
    except Refused as error:
        raise Problem("malformed", error.detail) from None
