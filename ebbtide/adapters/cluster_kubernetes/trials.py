"""Has the API server judge a pod without making it: a server-side dry run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ebbtide.adapters.cluster_kubernetes.api import Api


class ApiTrials:
    """What the API server behind `api`, and whoever admits pods there, would say."""

    def __init__(self, *, api: Api) -> None:
        self._api = api

    async def pod(self, namespace: str, body: Mapping[str, Any]) -> None:
        """Try to make the pod; raises Refused (with `field`) where it would not be."""
        query = {"dryRun": "All", "fieldValidation": "Strict"}
        path = f"/api/v1/namespaces/{namespace}/pods"
        await self._api.call("POST", path, what="pod", query=query, body=body)
