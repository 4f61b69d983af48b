"""docs/metrics.md: every metric with its type, unit, labels and meaning (pure)."""

from __future__ import annotations

from ebbtide.catalogue import GROUPS, Group, Metric

_HEAD = """# Metrics: every name

Generated from `ebbtide/catalogue` by `make generate`; change the metrics there, not this page.

Every process serves its own at `/metrics` in the text format of Prometheus. `GET /v1/metrics` of the
gateway (with a token) serves the figures of jobs, drawn from what is durable: nothing is lost when an
actor or a planner ends between two scrapes. `GET /v1/targets` lists what is to be scraped, in the form of
Prometheus's HTTP service discovery, with the labels `namespace`, `rlhf_job`, `role` and `pod`;
[deploy/prometheus/local.yaml](../deploy/prometheus/local.yaml) uses both.

Names say the unit, except where the quantity has a name in TRL (last column) or no unit. Histograms have
`_bucket`, `_sum` and `_count`, summaries the last two. `most` is how many series one process shows at most.
"""


def metrics_page() -> str:
    """The page's text."""
    return "\n".join([_HEAD, *map(_section, GROUPS)]).rstrip() + "\n"


def _section(group: Group) -> str:
    head = "| metric | type | unit | labels | most | meaning | TRL |\n| --- | --- | --- | --- | --- | --- | --- |"
    rows = "\n".join(map(_row, group.metrics))
    return f"## {group.source}\n\n{group.about} At most {group.most_series} series.\n\n{head}\n{rows}\n"


def _row(metric: Metric) -> str:
    labels = "; ".join(
        f"`{label.name}`" + (f" ({label.values})" if label.values else "")
        for label in metric.labels
    )
    trl = f"`{metric.trl}`" if metric.trl else ""
    return (
        f"| `{metric.name}` | {metric.kind} | {metric.unit} | {labels} | {metric.most_series} "
        f"| {metric.about} | {trl} |"
    )
