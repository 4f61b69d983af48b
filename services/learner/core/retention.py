"""Which publications and checkpoints may go, and from which manifest to start."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable

from ebbtide import paths

_MANIFEST = re.compile(r"/attempts/(\d+)/manifests/(\d+)\.msgpack$")
_POLICY = re.compile(r"/attempts/(\d+)/policies/(\d+)/")


def newest_manifest(listed: Iterable[str], below: int) -> str | None:
    """Path of the newest committed manifest of the latest attempt lower than `below`."""
    found = [(m, path) for path in listed if (m := _MANIFEST.search(path))]
    older = [(int(m[1]), int(m[2]), path) for m, path in found if int(m[1]) < below]
    return max(older)[2] if older else None


def policy_folder(path: str) -> str:
    """Folder of the publication that the blob `path` belongs to; "" if to none."""
    found = _POLICY.search(path)
    return path[: found.end()] if found else ""


def prunable(
    published: Collection[int], *, current: int, keep: int, named: Collection[int]
) -> list[int]:
    """Versions that may be deleted: older than the newest `keep`, and in no checkpoint."""
    newest = set(sorted(n for n in published if n <= current)[-keep:])
    return sorted(n for n in published if n < current and n not in newest and n not in named)


def manifests_of_job(uid: str) -> str:
    """Prefix under which the manifests of all attempts lie."""
    return f"{paths.job(uid)}attempts/"
