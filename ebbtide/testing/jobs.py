"""Builders of job objects that show only what matters to a test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ebbtide.objects import merge
from ebbtide.ports import Meta, Resource
from ebbtide.spec import API_VERSION

_GRPO: dict[str, Any] = {
    "model": {"uri": "/models/tiny"},
    "dataset": {"train": {"type": "jsonl", "uri": "/data/train.jsonl"}},
    "algorithm": {"type": "grpo"},
    "training": {"totalSteps": 10},
    "reward": {"components": [{"type": "exact", "name": "exact"}]},
}


def a_spec(**changes: Any) -> dict[str, Any]:
    """A valid GRPO specification; `changes` (camelCase) are merged into it."""
    merged: dict[str, Any] = merge(_GRPO, changes)
    return merged


def an_sft_spec(**changes: Any) -> dict[str, Any]:
    """A valid supervised specification."""
    return a_spec(**{"algorithm": {"type": "sft"}, "reward": None, **changes})


def a_job(name: str = "job", *, spec: Mapping[str, Any] | None = None, **changes: Any) -> Resource:
    """A job object as a user creates it: `spec`, or a GRPO one with `changes`."""
    return Resource(
        api_version=API_VERSION,
        kind="RLHFJob",
        metadata=Meta(name=name),
        spec=dict(spec) if spec is not None else a_spec(**changes),
    )
