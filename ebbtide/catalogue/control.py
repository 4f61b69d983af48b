"""Metrics of what decides and serves: planner, operator, gateway (pure)."""

from __future__ import annotations

from ebbtide.catalogue.base import Group, Label, counter, gauge, histogram, summary

_ROLE = Label("role", "planner, learner, prefill, decode, reward", 5)

PLANNER = Group(
    "planner",
    "The planner of one job, while it runs. Totals of the job are in its figures.",
    (
        counter("ebbtide_planner_records_total", "records", "Records appended to the ledger."),
        histogram(
            "ebbtide_planner_append_seconds", "seconds", "To make one ledger segment durable."
        ),
        counter(
            "ebbtide_planner_events_total",
            "events",
            "Events that the core took in.",
            Label("kind", "kind of event", 24),
        ),
        counter("ebbtide_planner_core_seconds_total", "seconds", "Time spent in the core."),
        gauge("ebbtide_planner_committed_steps", "steps", "Committed steps."),
        gauge(
            "ebbtide_planner_open_samples",
            "samples",
            "Samples of the open step by where they are.",
            Label("state", "expected, accepted, scored, abandoned, invalid", 5),
        ),
        gauge(
            "ebbtide_planner_actors",
            "actors",
            "Actors: wanted by the plan, registered, and serving the current policy.",
            Label("state", "wanted, registered, serving", 3),
        ),
        gauge("ebbtide_planner_policy_version", "version", "Newest committed policy; -1: none."),
        gauge(
            "ebbtide_planner_unacknowledged_facts",
            "facts",
            "Facts taken from the broker and not durable in the ledger yet.",
        ),
        gauge(
            "ebbtide_planner_progress_age_seconds",
            "seconds",
            "Since a sample ended, a batch was learned, or a step was committed.",
        ),
    ),
)

OPERATOR = Group(
    "operator",
    "The operator that holds the lease; one that waits for it shows zeros.",
    (
        counter(
            "ebbtide_operator_passes_total",
            "passes",
            "Looks at a job by how they ended.",
            Label("outcome", "done, conflict, retry, unjudged", 4),
        ),
        histogram("ebbtide_operator_pass_seconds", "seconds", "Time of one look at one job."),
        gauge("ebbtide_operator_queued_jobs", "jobs", "Jobs that wait to be looked at."),
        gauge(
            "ebbtide_operator_reconcile_age_seconds",
            "seconds",
            "Since the last finished look at the job that was looked at longest ago.",
        ),
        counter(
            "ebbtide_operator_events_total",
            "events",
            "Events told to users.",
            Label("reason", "a reason of docs/job-status.md", 64),
        ),
        gauge(
            "ebbtide_operator_pods",
            "pods",
            "Pods of all jobs by role and phase.",
            _ROLE,
            Label("phase", "Pending, Running, Succeeded, Failed", 4),
        ),
        gauge(
            "ebbtide_operator_oldest_pending_seconds",
            "seconds",
            "Age of the pod that has waited longest for its start.",
        ),
        summary(
            "ebbtide_operator_pod_start_seconds",
            "seconds",
            "Cold start by stage: scheduled = created to started, ready = started to ready.",
            _ROLE,
            Label("stage", "scheduled, ready", 2),
        ),
        counter(
            "ebbtide_operator_drain_timeouts_total",
            "timeouts",
            "Pods that were asked to leave and had to be killed.",
            _ROLE,
        ),
    ),
)

GATEWAY = Group(
    "gateway",
    "Each gateway process.",
    (
        counter(
            "ebbtide_gateway_requests_total",
            "requests",
            "Answers by route, method and status.",
            Label("route", "a path of the API, or unmatched", 32),
            Label("method", "an HTTP method, or other", 8),
            Label("status", "an HTTP status", 16),
        ),
        histogram(
            "ebbtide_gateway_request_seconds",
            "seconds",
            "From the request to the start of the answer.",
            Label("route", "a path of the API, or unmatched", 32),
        ),
    ),
)
