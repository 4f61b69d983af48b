"""Objects as the API shows them."""

from __future__ import annotations

from typing import Any

import msgspec

from ebbtide.ports import Resource
from services.gateway.core.state import State, state_of


def job_view(resource: Resource, state: State | None = None) -> dict[str, Any]:
    """The stored object with its state, reason and message (ebbtide.api.Job)."""
    state = state or state_of(resource)
    values: dict[str, Any] = msgspec.to_builtins(resource)
    return {
        **values,
        "spec": dict(resource.spec),
        "status": dict(resource.status),
        "state": state.name,
        "reason": state.reason,
        "message": state.message,
    }
