"""Boards of one job at work: where the time goes (pure)."""

from __future__ import annotations

from ebbtide.dashboards.base import JOB, Board, panel, rate

_PRICES = "the job has prices for its pools."
_MOVES = "samples of the job moved while they ran."
_FORECAST = "the planner had seen enough answers to forecast lengths."


_PHASES = panel(
    "Where the time goes",
    "s",
    "Seconds per step by phase: planning, policy sync, sampling, scoring, learning.",
    (
        (
            f"sum by (phase) (ebbtide_job_phase_seconds_total{{{JOB}}})"
            f" / on () group_left () sum(ebbtide_job_steps_total{{{JOB}}})"
        ),
        "{{phase}}",
    ),
)
_OUTCOMES = panel(
    "Samples by outcome",
    "short",
    "Of committed steps. They add up to the samples that were expected.",
    (f"sum by (outcome) (ebbtide_job_samples_total{{{JOB}}})", "{{outcome}}"),
    (f"sum(ebbtide_job_expected_samples_total{{{JOB}}})", "expected"),
)
_OPEN = panel(
    "The open step",
    "short",
    "Samples of the step that is under way, by where they are.",
    (f"ebbtide_planner_open_samples{{{JOB}}}", "{{state}}"),
)

JOB_BOARD = Board(
    "ebbtide-job",
    "ebbtide / Job",
    "One job: progress, phases, samples, tokens.",
    (
        panel(
            "Steps",
            "short",
            "Committed steps, and how many there are to be.",
            (f"ebbtide_job_steps_total{{{JOB}}}", "committed"),
            (f"ebbtide_job_target_steps{{{JOB}}}", "to be"),
            kind="stat",
        ),
        panel(
            "Step time",
            "s",
            "Length of the last step, from commit to commit.",
            (f"ebbtide_job_step_seconds{{{JOB}}}", "step"),
        ),
        _PHASES,
        _OUTCOMES,
        _OPEN,
        panel(
            "Tokens",
            "short",
            "Prompts once per group, accepted responses, tokens drawn for nothing, trained on.",
            (f"sum by (kind) (ebbtide_job_tokens_total{{{JOB}}})", "{{kind}}"),
        ),
        panel(
            "Tokens drawn per second",
            "short",
            "By all actors together.",
            (f"sum(rate(ebbtide_decode_tokens_total{{{JOB}}}[$__rate_interval]))", "tokens/s"),
        ),
        panel(
            "Hand-outs",
            "short",
            "All hand-outs of samples; resumed from a journal, restarted without one, void.",
            (f"sum by (kind) (ebbtide_job_dispatches_total{{{JOB}}})", "{{kind}}"),
        ),
        panel(
            "Scoring",
            "s",
            "Mean time to judge an answer, by reward component.",
            (
                (
                    f"{rate('ebbtide_reward_component_seconds_sum', 'component')}"
                    f" / {rate('ebbtide_reward_component_seconds_count', 'component')}"
                ),
                "{{component}}",
            ),
        ),
        panel(
            "Queues",
            "short",
            "Facts not durable yet, facts not settled, answers being scored.",
            (f"sum(ebbtide_planner_unacknowledged_facts{{{JOB}}})", "planner: facts"),
            (f"sum(ebbtide_decode_outbox_facts{{{JOB}}})", "actors: facts"),
            (f"sum(ebbtide_reward_in_flight_samples{{{JOB}}})", "scorers: answers"),
        ),
        panel(
            "Learner's work",
            "s",
            "Mean time of an update and of a checkpoint.",
            (
                (
                    f"sum by (outcome) (ebbtide_learner_order_seconds_sum{{{JOB}}})"
                    f" / sum by (outcome) (ebbtide_learner_order_seconds_count{{{JOB}}})"
                ),
                "{{outcome}}",
            ),
        ),
        panel(
            "Planner",
            "percentunit",
            "Share of a core that the planner's decisions take, and appends to the ledger.",
            (
                f"rate(ebbtide_planner_core_seconds_total{{{JOB}}}[$__rate_interval])",
                "core",
            ),
            (
                f"rate(ebbtide_planner_append_seconds_sum{{{JOB}}}[$__rate_interval])",
                "ledger",
            ),
        ),
    ),
    links=("ebbtide-pool", "ebbtide-learning", "ebbtide-cost"),
)

POOL = Board(
    "ebbtide-pool",
    "ebbtide / Decode pool and decisions",
    "Actors of one job, what the planner decided, and what came of it.",
    (
        panel(
            "Actors: planned and there",
            "short",
            "Wanted by the plan, registered, and serving the current policy.",
            (f"sum by (state) (ebbtide_planner_actors{{{JOB}}})", "{{state}}"),
        ),
        panel(
            "Samples on actors",
            "short",
            "Decoded and waiting, by actor.",
            (f"ebbtide_decode_running_samples{{{JOB}}}", "{{pod}}"),
            (f"ebbtide_decode_waiting_samples{{{JOB}}}", "{{pod}} waiting"),
        ),
        panel(
            "Seconds per token",
            "s",
            "Of a running sample, by actor.",
            (f"ebbtide_decode_token_seconds{{{JOB}}}", "{{pod}}"),
        ),
        panel(
            "Predicted and realised time",
            "s",
            "Decoding, the step, and seconds of actors; of the last step.",
            (f"ebbtide_job_predicted_seconds{{{JOB}}}", "{{what}} predicted"),
            (f"ebbtide_job_realised_seconds{{{JOB}}}", "{{what}} realised"),
        ),
        panel(
            "Predicted and realised cost of decoding",
            "short",
            "Of the last step, in the job's currency.",
            (f"ebbtide_job_predicted_cost{{{JOB}}}", "predicted {{currency}}"),
            (f"ebbtide_job_realised_cost{{{JOB}}}", "realised {{currency}}"),
            needs=_PRICES,
        ),
        panel(
            "Decisions",
            "short",
            "Plans by rule: chosen, or kept because another gained too little.",
            (f"sum by (rule) (ebbtide_job_decisions_total{{{JOB}}})", "{{rule}}"),
        ),
        panel(
            "Predicted and actual length",
            "short",
            "Mean absolute error of the median forecast, and the lengths themselves, tokens.",
            (f"ebbtide_job_length_error_tokens{{{JOB}}}", "error"),
            (f"ebbtide_job_response_tokens{{{JOB}}}", "{{stat}}"),
            needs=_FORECAST,
        ),
        panel(
            "Forecast: coverage and tail recall",
            "percentunit",
            "Share of answers at or below each forecast quantile (0.5 and 0.9 are right), and"
            " share of the longest tenth that was foreseen.",
            (f"ebbtide_job_length_coverage{{{JOB}}}", "P{{quantile}}"),
            (f"ebbtide_job_length_tail_recall{{{JOB}}}", "tail"),
            needs=_FORECAST,
        ),
        panel(
            "Migrations",
            "short",
            "Samples that were to move, by rule and result.",
            (
                f"sum by (rule, result) (ebbtide_job_migrated_samples_total{{{JOB}}})",
                "{{rule}} {{result}}",
            ),
            needs=_MOVES,
        ),
        panel(
            "Ends on actors",
            "short",
            "Samples by how they ended there, in the last while.",
            (rate("ebbtide_decode_ended_samples_total", "reason"), "{{reason}}"),
        ),
        panel(
            "KV held",
            "short",
            "Tokens whose keys and values the engine holds, by actor.",
            (f"ebbtide_decode_kv_used_tokens{{{JOB}}}", "{{pod}}"),
        ),
        panel(
            "Journal lag",
            "short",
            "Tokens drawn that a crash now would lose.",
            (f"sum(ebbtide_decode_journal_lag_tokens{{{JOB}}})", "tokens"),
        ),
    ),
    links=("ebbtide-job", "ebbtide-kv", "ebbtide-weights"),
)
