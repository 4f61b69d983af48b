"""The local object store: Kubernetes' object semantics in one SQLite file for all processes."""

from ebbtide.adapters.cluster_sqlite.cluster import SqliteCluster, open_cluster
from ebbtide.adapters.cluster_sqlite.pod_logs import log_file, read_lines

__all__ = ["SqliteCluster", "log_file", "open_cluster", "read_lines"]
