"""Which right on the job objects a request needs: kubectl and REST have one policy (pure)."""

from __future__ import annotations

import re

import msgspec

_LISTS = frozenset({"/v1/jobs", "/v1/metrics", "/v1/targets", "/ui", "/ui/compare", "/ui/login"})
"""What tells of all jobs; the pages are only read."""
_CREATES = frozenset({("POST", "/v1/jobs"), ("POST", "/v1/jobs:validate")})
_JOB = re.compile(r"/(?:v1|ui)/jobs/(?P<name>[^/:]+)(?:/(?P<part>[^/]+))?.*")
_CHANGES = frozenset({"cancel", "suspend", "resume"})


class Need(msgspec.Struct, frozen=True):
    """A verb of the Kubernetes API, on one job or, with no name, on all of them."""

    verb: str
    name: str = ""


def need_of(method: str, path: str) -> Need:
    """The right that a request needs. What is unknown needs the most there is."""
    if (method, path) in _CREATES:
        return Need("create")
    if path in _LISTS:
        return Need("list")
    found = _JOB.fullmatch(path)
    if found is None:
        return Need("*")
    if method == "DELETE":
        return Need("delete", found["name"])
    if method in ("GET", "HEAD"):
        return Need("get", found["name"])
    changes = method == "POST" and found["part"] in _CHANGES
    return Need("patch" if changes else "*", found["name"])
