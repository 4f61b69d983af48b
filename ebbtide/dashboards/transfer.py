"""Boards of what actors hand to each other and get from the learner (pure)."""

from __future__ import annotations

from ebbtide.dashboards.base import JOB, Board, panel, rate

_SERVICE = "the job has prefill.mode service."
_MOVES = "samples of the job moved while they ran."

_KV_PANELS = (
    panel(
        "Prompt tokens: computed and saved",
        "short",
        "needed is what engines that share nothing would compute.",
        (f"sum by (kind) (ebbtide_job_prefill_tokens_total{{{JOB}}})", "{{kind}}"),
    ),
    panel(
        "Prefill on actors",
        "short",
        "Tokens per second that samples needed prefilled, by where they came from.",
        (rate("ebbtide_decode_prefill_tokens_total", "source"), "{{source}}"),
    ),
    panel(
        "Tickets by outcome",
        "short",
        "Pulls of KV; expired reads should be none.",
        (f"sum by (outcome) (ebbtide_job_kv_pulls_total{{{JOB}}})", "{{outcome}}"),
        needs=_MOVES,
    ),
    panel(
        "Exports",
        "short",
        "Cuts with KV: held for a reader or not.",
        (f"sum by (outcome) (ebbtide_job_kv_exports_total{{{JOB}}})", "{{outcome}}"),
        needs=_MOVES,
    ),
    panel(
        "Leases held",
        "short",
        "Exports that may still be read, by actor.",
        (f"ebbtide_decode_kv_held_exports{{{JOB}}}", "{{pod}}"),
    ),
    panel(
        "KV handed over",
        "bytes",
        "By direction, actors that have ended included.",
        (f"sum by (direction) (ebbtide_job_kv_bytes_total{{{JOB}}})", "{{direction}}"),
        needs=_MOVES,
    ),
    panel(
        "Time of a pull",
        "s",
        "Mean over pulls that brought KV.",
        (
            (
                f"sum(ebbtide_job_kv_pull_seconds_total{{{JOB}}})"
                f' / (sum(ebbtide_job_kv_pulls_total{{{JOB},outcome="imported"}}) > 0)'
            ),
            "pull",
        ),
        needs=_MOVES,
    ),
    panel(
        "Pause of samples that moved",
        "s",
        "From the order until they were seen with their target, all together.",
        (f"ebbtide_job_migration_pause_seconds_total{{{JOB}}}", "pause"),
        needs=_MOVES,
    ),
    panel(
        "KV of moves",
        "bytes",
        "Bytes that tickets of moved samples were for.",
        (f"ebbtide_job_migrated_kv_bytes_total{{{JOB}}}", "bytes"),
        needs=_MOVES,
    ),
    panel(
        "Prefill service: requests",
        "short",
        "By answer.",
        (f"sum by (answer) (ebbtide_prefill_requests_total{{{JOB}}})", "{{answer}}"),
        needs=_SERVICE,
    ),
    panel(
        "Prefill service: tokens",
        "short",
        "Computed, shared with prompts that begin alike, and granted to readers.",
        (f"sum(ebbtide_prefill_tokens_total{{{JOB}}})", "computed"),
        (f"sum(ebbtide_prefill_shared_tokens_total{{{JOB}}})", "shared"),
        (f"sum(ebbtide_prefill_granted_tokens_total{{{JOB}}})", "granted"),
        needs=_SERVICE,
    ),
    panel(
        "Prompts from the service",
        "short",
        "What came of each prompt that an actor asked the service for.",
        (
            f"sum by (outcome) (ebbtide_job_prompt_requests_total{{{JOB}}})",
            "{{outcome}}",
        ),
        needs=_SERVICE,
    ),
)

KV = Board(
    "ebbtide-kv",
    "ebbtide / KV transfer",
    "Keys and values: computed once, shared, handed over.",
    _KV_PANELS,
    links=("ebbtide-job", "ebbtide-pool"),
)

WEIGHTS = Board(
    "ebbtide-weights",
    "ebbtide / Weight sync",
    "How each policy gets to the actors, and how old it is there.",
    (
        panel(
            "Version lag",
            "short",
            "Versions between the newest committed policy and the oldest that an actor holds.",
            (
                (
                    f"max(ebbtide_planner_policy_version{{{JOB}}})"
                    f" - min(ebbtide_decode_policy_version{{{JOB}}})"
                ),
                "lag",
            ),
        ),
        panel(
            "Versions",
            "short",
            "Published by the learner, committed by the planner, held by each actor.",
            (f"max(ebbtide_learner_policy_version{{{JOB}}})", "published"),
            (f"max(ebbtide_planner_policy_version{{{JOB}}})", "committed"),
            (f"ebbtide_decode_policy_version{{{JOB}}}", "{{pod}}"),
        ),
        panel(
            "Sync per step",
            "s",
            "Seconds per step until the first sample was handed out.",
            (
                (
                    f'sum(ebbtide_job_phase_seconds_total{{{JOB},phase="sync"}})'
                    f" / sum(ebbtide_job_steps_total{{{JOB}}})"
                ),
                "sync",
            ),
        ),
        panel(
            "To publish",
            "s",
            "Seconds that the learner took to publish the last policy.",
            (f"ebbtide_job_publish_seconds{{{JOB}}}", "publish"),
        ),
        panel(
            "Size",
            "bytes",
            "Bytes of the last policy.",
            (f"ebbtide_job_publish_bytes{{{JOB}}}", "policy"),
        ),
        panel(
            "To load",
            "s",
            "Mean time of an actor to fetch, load and probe a policy.",
            (
                (
                    f"sum by (pod) (ebbtide_decode_load_seconds_sum{{{JOB}}})"
                    f" / sum by (pod) (ebbtide_decode_load_seconds_count{{{JOB}}})"
                ),
                "{{pod}}",
            ),
        ),
        panel(
            "Bytes loaded",
            "bytes",
            "By all actors together, those that have ended included.",
            (f"sum(ebbtide_job_load_bytes_total{{{JOB}}})", "bytes"),
        ),
        panel(
            "Loads that failed",
            "short",
            "By actor.",
            (f"ebbtide_decode_load_failures_total{{{JOB}}}", "{{pod}}"),
        ),
    ),
    links=("ebbtide-job", "ebbtide-pool"),
)
