"""The Kubernetes API as a cluster of objects."""

from ebbtide.adapters.cluster_kubernetes.access import ApiReviews
from ebbtide.adapters.cluster_kubernetes.cluster import KubernetesCluster, open_kubernetes
from ebbtide.adapters.cluster_kubernetes.kinds import KINDS, Kind
from ebbtide.adapters.cluster_kubernetes.trials import ApiTrials

__all__ = ["KINDS", "ApiReviews", "ApiTrials", "Kind", "KubernetesCluster", "open_kubernetes"]
