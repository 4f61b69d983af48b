"""Which publications may go."""

from __future__ import annotations

import re
from collections.abc import Collection

_POLICY = re.compile(r"/attempts/(\d+)/policies/(\d+)/")


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
