"""Which kinds of object there are, and where the API keeps them (pure)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from ebbtide.errors import Refused
from ebbtide.spec import API_VERSION


class Kind(msgspec.Struct, frozen=True):
    """`flat`: what `Resource.spec` holds stands beside the metadata, as in an Event or a Role.

    `everywhere`: its objects belong to no namespace; whichever is asked for means nothing.
    """

    api_version: str
    plural: str
    flat: bool = False
    everywhere: bool = False

    def path(self, namespace: str | None, name: str = "", subresource: str = "") -> str:
        """URL path of the collection, or of one object; `namespace` None: of all namespaces."""
        root = "/apis" if "/" in self.api_version else "/api"
        parts = [root, self.api_version]
        if namespace is not None and not self.everywhere:
            parts += ["namespaces", namespace]
        return "/".join(part for part in (*parts, self.plural, name, subresource) if part)


_RBAC = "rbac.authorization.k8s.io/v1"
KINDS: Mapping[str, Kind] = MappingProxyType(
    {
        "RLHFJob": Kind(API_VERSION, "rlhfjobs"),
        "DecodePool": Kind(API_VERSION, "decodepools"),
        "Pod": Kind("v1", "pods"),
        "ClusterRLHFRuntime": Kind(API_VERSION, "clusterrlhfruntimes", everywhere=True),
        "Node": Kind("v1", "nodes", everywhere=True),
        "Service": Kind("v1", "services"),
        "Event": Kind("v1", "events", flat=True),
        "ServiceAccount": Kind("v1", "serviceaccounts", flat=True),
        "Lease": Kind("coordination.k8s.io/v1", "leases"),
        "Role": Kind(_RBAC, "roles", flat=True),
        "RoleBinding": Kind(_RBAC, "rolebindings", flat=True),
    }
)


def kind_of(name: str, kinds: Mapping[str, Kind]) -> Kind:
    """The kind of that name; raises Refused for one that nobody told this program of."""
    if name not in kinds:
        raise Refused(f"kind {name} is not known here: {', '.join(sorted(kinds))}", field="/kind")
    return kinds[name]
