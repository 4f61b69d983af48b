"""ETag and If-Match: the resource version, quoted."""

from __future__ import annotations

import re

from services.gateway.core.problems import Problem

_TAG = re.compile(r'"([\x21\x23-\x7e]{1,128})"')


def etag(resource_version: str) -> str:
    """The strong entity tag of an object."""
    return f'"{resource_version}"'


def expected(if_match: str | None) -> str | None:
    """The version that the caller wants to change, or None for whichever is there."""
    if if_match is None or if_match.strip() == "*":
        return None
    match = _TAG.fullmatch(if_match.strip())
    if match is None:
        raise Problem("malformed", 'If-Match must be one ETag of a job, such as "42", or *.')
    return match[1]


def unchanged(if_none_match: str | None, resource_version: str) -> bool:
    """Whether the caller has this version already (weak comparison, as RFC 9110 says)."""
    if if_none_match is None:
        return False
    tags = {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
    return "*" in tags or etag(resource_version) in tags
