"""What all jobs of one operator share: where the servers are, and how pods are made (pure)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec


class Site(msgspec.Struct, frozen=True):
    """`env`: variables of every pod; `role_env`, `secret_env`: more of them by role.

    `rendezvous`: where the ranks of an attempt meet, with {uid} and {attempt}. `audit`: file to
    which an actor logs what was settled, with {pod}; empty: none.
    """

    env: Mapping[str, str] = {}
    role_env: Mapping[str, Mapping[str, str]] = {}
    secret_env: Mapping[str, Mapping[str, str]] = {}
    rendezvous: str = "tcp://{pod}:29500"
    audit: str = ""
    restart_limit: int = 30
    """Restarts of one role in a row without progress before the job fails."""
    usage_seconds: float = 10.0
    """How often the held time of a living pod is written."""
