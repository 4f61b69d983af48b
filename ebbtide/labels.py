"""Labels and annotations of the objects, spelled once (pure)."""

from __future__ import annotations

GROUP = "rlhf.ebbtide.dev"

JOB = f"{GROUP}/job"
"""Label of everything that belongs to a job: the job's name."""
JOB_UID = f"{GROUP}/job-uid"
"""Label beside it: the job's uid, since a name can be used again."""
ROLE = f"{GROUP}/role"
"""Label of a pod: planner | decode | reward | learner | prefill."""
ATTEMPT = f"{GROUP}/attempt"
"""Label of a pod: the attempt that it was started for."""
INDEX = f"{GROUP}/index"
"""Label of a pod: its number among those of its role; of a learner, its rank."""
HOSTNAME = "kubernetes.io/hostname"
"""Label of a place: the node."""
CANCEL = f"{GROUP}/cancel"
"""Annotation of a job: its presence asks the operator to end the job."""
SCRAPE = f"{GROUP}/scrape"
"""Annotation of the operator's lease: host and port where its holder can be scraped."""
LEASE = "ebbtide-operator"
"""Name of that lease."""
