"""Which files are generated, and what they hold (pure)."""

from __future__ import annotations

import json

from ebbtide.dashboards import dashboards
from ebbtide.generate.chart.files import chart_files
from ebbtide.generate.crds import decode_pool_crd, job_crd, runtime_crd
from ebbtide.generate.metrics import metrics_page
from ebbtide.generate.page import job_page
from ebbtide.spec import RLHFJob

_CRDS = "operator/ebbtide_operator/crds"


def generated() -> dict[str, str]:
    """Content by path from the repository's root."""
    crds = {
        "rlhfjobs.yaml": job_crd(),
        "decodepools.yaml": decode_pool_crd(),
        "clusterrlhfruntimes.yaml": runtime_crd(),
    }
    found = {
        "docs/job.md": job_page(),
        "docs/metrics.md": metrics_page(),
        "docs/api/rlhfjob.schema.json": job_schema(),
    }
    found |= {f"{_CRDS}/{name}": content for name, content in crds.items()}
    found |= {f"deploy/dashboards/{name}": content for name, content in dashboards().items()}
    return found | chart_files(crds, dashboards())


def job_schema() -> str:
    """JSON schema (2020-12) of a job file, for editors and other programs."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **RLHFJob.model_json_schema(),
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
