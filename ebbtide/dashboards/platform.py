"""Boards of the platform: all jobs, and those who look after them (pure)."""

from __future__ import annotations

from ebbtide.dashboards.base import Board, panel

_HERE = 'namespace="$namespace"'
_DRAIN = "a pod did not leave in time."

FLEET = Board(
    "ebbtide-fleet",
    "ebbtide / Fleet",
    "All jobs of a namespace.",
    (
        panel(
            "Jobs by state",
            "short",
            "Jobs that exist.",
            (f"sum by (state) (ebbtide_jobs{{{_HERE}}})", "{{state}}"),
        ),
        panel(
            "Progress",
            "percentunit",
            "Committed steps of those to be done, by job.",
            (
                f"ebbtide_job_steps_total{{{_HERE}}} / ebbtide_job_target_steps{{{_HERE}}}",
                "{{rlhf_job}}",
            ),
        ),
        panel(
            "Tokens drawn per second",
            "short",
            "By job.",
            (
                f"sum by (rlhf_job) (rate(ebbtide_decode_tokens_total{{{_HERE}}}[$__rate_interval]))",
                "{{rlhf_job}}",
            ),
        ),
        panel(
            "Pods by role",
            "short",
            "That run now, of all namespaces that the operator looks after.",
            ('sum by (role) (ebbtide_operator_pods{phase="Running"})', "{{role}}"),
        ),
        panel(
            "Cost by job",
            "short",
            "So far, of what has a price; in each job's currency.",
            (
                f"sum by (rlhf_job, currency) (ebbtide_job_cost_total{{{_HERE}}})",
                "{{rlhf_job}} {{currency}}",
            ),
            needs="a job has prices for its pools.",
        ),
        panel(
            "Held time by cause",
            "s",
            "Of all jobs.",
            (f"sum by (cause) (ebbtide_job_cause_seconds_total{{{_HERE}}})", "{{cause}}"),
        ),
        panel(
            "Seconds since any progress",
            "s",
            "By job that runs.",
            (f"ebbtide_planner_progress_age_seconds{{{_HERE}}}", "{{rlhf_job}}"),
        ),
        panel(
            "CPU of actors",
            "percentunit",
            "Cores, by job.",
            (
                (
                    "sum by (rlhf_job) (rate(process_cpu_seconds_total"
                    f'{{{_HERE},role="decode"}}[$__rate_interval]))'
                ),
                "{{rlhf_job}}",
            ),
        ),
        panel(
            "Memory of pods",
            "bytes",
            "Resident, by job and role.",
            (
                f'sum by (rlhf_job, role) (process_resident_memory_bytes{{{_HERE},rlhf_job!=""}})',
                "{{rlhf_job}} {{role}}",
            ),
        ),
    ),
    links=("ebbtide-job", "ebbtide-cost", "ebbtide-operator"),
    job=False,
)

OPERATOR = Board(
    "ebbtide-operator",
    "ebbtide / Operator and gateway",
    "Those who look after the jobs. The namespace does not matter here.",
    (
        panel(
            "Reconcile age",
            "s",
            "Since the last finished look at the job that was looked at longest ago.",
            ("max(ebbtide_operator_reconcile_age_seconds)", "age"),
        ),
        panel(
            "Looks by outcome",
            "short",
            "Per second.",
            (
                "sum by (outcome) (rate(ebbtide_operator_passes_total[$__rate_interval]))",
                "{{outcome}}",
            ),
        ),
        panel(
            "Time of a look",
            "s",
            "Mean, and 99th percentile.",
            (
                (
                    "sum(rate(ebbtide_operator_pass_seconds_sum[$__rate_interval]))"
                    " / sum(rate(ebbtide_operator_pass_seconds_count[$__rate_interval]))"
                ),
                "mean",
            ),
            (
                (
                    "histogram_quantile(0.99, sum by (le)"
                    " (rate(ebbtide_operator_pass_seconds_bucket[$__rate_interval])))"
                ),
                "99 %",
            ),
        ),
        panel(
            "Jobs that wait for a look",
            "short",
            "In the operator's queue.",
            ("sum(ebbtide_operator_queued_jobs)", "jobs"),
        ),
        panel(
            "Pods by role and phase",
            "short",
            "Of all jobs.",
            ("sum by (role, phase) (ebbtide_operator_pods)", "{{role}} {{phase}}"),
        ),
        panel(
            "Oldest pod that waits for its start",
            "s",
            "Capacity is short while this rises.",
            ("max(ebbtide_operator_oldest_pending_seconds)", "age"),
        ),
        panel(
            "Cold start by stage",
            "s",
            "Mean: created to started (scheduled), started to ready (ready), by role.",
            (
                (
                    "sum by (role, stage) (ebbtide_operator_pod_start_seconds_sum)"
                    " / sum by (role, stage) (ebbtide_operator_pod_start_seconds_count)"
                ),
                "{{role}} {{stage}}",
            ),
        ),
        panel(
            "Drain time-outs",
            "short",
            "Pods that were asked to leave and had to be killed.",
            ("sum by (role) (ebbtide_operator_drain_timeouts_total)", "{{role}}"),
            needs=_DRAIN,
        ),
        panel(
            "Events told to users",
            "short",
            "By reason.",
            ("sum by (reason) (ebbtide_operator_events_total)", "{{reason}}"),
        ),
        panel(
            "API requests",
            "short",
            "Per second, by route and status.",
            (
                "sum by (route, status) (rate(ebbtide_gateway_requests_total[$__rate_interval]))",
                "{{route}} {{status}}",
            ),
        ),
        panel(
            "API: time to the start of an answer",
            "s",
            "99th percentile by route.",
            (
                (
                    "histogram_quantile(0.99, sum by (route, le)"
                    " (rate(ebbtide_gateway_request_seconds_bucket[$__rate_interval])))"
                ),
                "{{route}}",
            ),
        ),
        panel(
            "Processes",
            "short",
            "That answer Prometheus, by role.",
            ("sum by (role) (up)", "{{role}}"),
        ),
    ),
    links=("ebbtide-fleet",),
    job=False,
)
