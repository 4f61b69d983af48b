"""Figures of jobs, which the gateway draws from what is durable: reports, held time, causes (pure).

They survive every process: an actor or a planner that ends between two scrapes takes nothing along.
"""

from __future__ import annotations

from ebbtide.catalogue.base import Group, Label, Metric, counter, gauge

NAMESPACE = Label("namespace", "namespace of the job", 1)
JOB = Label("rlhf_job", "name of the job", 1)
CURRENCY = Label("currency", "the job's currency", 1)
_ROLE = Label("role", "planner, learner, prefill, decode, reward", 5)
_CAUSE = Label("cause", "busy, loading, idle, draining, wasted, startup, unattributed", 7)
_WHAT = Label("what", "decode, step, actor", 3)
_SIDE = Label("quantile", "0.5, 0.9", 2)


def _per_job(*metrics: Metric) -> tuple[Metric, ...]:
    return tuple(
        Metric(m.name, m.kind, m.unit, m.about, (NAMESPACE, JOB, *m.labels), trl=m.trl)
        for m in metrics
    )


def _slices(*figures: tuple[str, str, str]) -> tuple[Metric, ...]:
    by = Label("by", "task, length, prompts, reward, sign, age", 6)
    value = Label(
        "value",
        "12 tasks and other, 6 lengths, 1 prompt set, 4 reward versions, 3 signs, 4 ages",
        6,
    )
    return tuple(
        gauge(f"ebbtide_slice_{name}", unit, f"{about}, last step, training samples.", by, value)
        for name, unit, about in figures
    )


_COURSE = (
    gauge(
        "ebbtide_job_state",
        "1",
        "1 for the state that the job is in.",
        Label("state", "a state", 1),
    ),
    counter("ebbtide_job_steps_total", "steps", "Committed steps."),
    gauge("ebbtide_job_target_steps", "steps", "Steps that the job is to do."),
    gauge("ebbtide_job_step_seconds", "seconds", "Length of the last step.", trl="step_time"),
    counter(
        "ebbtide_job_phase_seconds_total",
        "seconds",
        "Where the time of steps went; what was hidden under another phase is not here.",
        Label("phase", "plan, sync, decode, score, learn", 5),
    ),
    counter(
        "ebbtide_job_samples_total",
        "samples",
        "Samples by what became of them; they add up to the expected ones.",
        Label("outcome", "valued, invalid, abandoned", 3),
    ),
    counter("ebbtide_job_expected_samples_total", "samples", "Samples of committed steps."),
    counter(
        "ebbtide_job_dispatches_total",
        "dispatches",
        "Hand-outs of samples: all of them, and among these the repeated and the void ones.",
        Label("kind", "all, resumed, restarted, void", 4),
    ),
    counter(
        "ebbtide_job_tokens_total",
        "tokens",
        "Tokens: prompts once per group, accepted responses, drawn for nothing, trained on.",
        Label("kind", "prompt, response, wasted, trained", 4),
    ),
    counter(
        "ebbtide_job_prefill_tokens_total",
        "tokens",
        "Prompt tokens: needed without sharing, computed, computed in the service, saved.",
        Label("kind", "needed, computed, in_service, saved_by_caching, saved_by_dedup", 5),
    ),
    gauge(
        "ebbtide_job_response_tokens",
        "tokens",
        "Length of responses, last step.",
        Label("stat", "p50, p90", 2),
    ),
)

_PLANS = (
    gauge("ebbtide_job_planned_actors", "actors", "Actors of the last plan."),
    gauge("ebbtide_job_serving_actors", "actors", "Actors that were there when it was made."),
    counter(
        "ebbtide_job_decisions_total",
        "decisions",
        "Plans by rule.",
        Label("rule", "chosen, kept, held, idle", 4),
    ),
    gauge("ebbtide_job_predicted_seconds", "seconds", "As predicted, last step.", _WHAT),
    gauge("ebbtide_job_realised_seconds", "seconds", "As it came, last step.", _WHAT),
    gauge("ebbtide_job_predicted_cost", "cost", "Cost of the chosen plan, last step.", CURRENCY),
    gauge("ebbtide_job_realised_cost", "cost", "Cost of decoding as it came, last step.", CURRENCY),
    gauge(
        "ebbtide_job_length_error_tokens",
        "tokens",
        "Mean absolute error of the median forecast, last step.",
    ),
    gauge(
        "ebbtide_job_length_coverage",
        "1",
        "Share of responses at or below the forecast quantile; the quantile itself is right.",
        _SIDE,
    ),
    gauge(
        "ebbtide_job_length_tail_recall",
        "1",
        "Share of the longest tenth among those expected longest.",
    ),
    counter(
        "ebbtide_job_migrated_samples_total",
        "samples",
        "Samples that were to move, by rule and result.",
        Label("rule", "benefit, tau, global-cut, none", 4),
        Label("result", "with_kv, recomputed, finished, failed", 4),
    ),
    counter("ebbtide_job_migrated_kv_tokens_total", "tokens", "Tokens whose KV had tickets."),
    counter("ebbtide_job_migrated_kv_bytes_total", "bytes", "KV that the tickets were for."),
    counter(
        "ebbtide_job_migration_pause_seconds_total",
        "seconds",
        "From orders until moved samples were seen with their targets: at most so long.",
    ),
    gauge("ebbtide_job_policy_version", "version", "Version after the last step."),
    gauge("ebbtide_job_publish_seconds", "seconds", "To publish the last policy."),
    gauge("ebbtide_job_publish_bytes", "bytes", "Size of the last policy."),
)

_HANDED = (
    counter(
        "ebbtide_job_kv_pulls_total",
        "pulls",
        "Tickets for KV by what came of them; expired: the lease was over before the read.",
        Label("outcome", "imported, miss, expired", 3),
    ),
    counter("ebbtide_job_kv_pull_seconds_total", "seconds", "To pull KV that was imported."),
    counter(
        "ebbtide_job_kv_exports_total",
        "exports",
        "Cuts with KV: held for a reader, or not.",
        Label("outcome", "held, failed", 2),
    ),
    counter(
        "ebbtide_job_kv_bytes_total",
        "bytes",
        "KV handed over by actors.",
        Label("direction", "in, out", 2),
    ),
    counter(
        "ebbtide_job_prompt_requests_total",
        "requests",
        "Prompts that the prefill service was to have, by what came of them.",
        Label("outcome", "imported, miss, expired, refused, silent, unfit", 6),
    ),
    counter(
        "ebbtide_job_loads_total",
        "loads",
        "Policies that actors loaded, or could not.",
        Label("outcome", "loaded, failed", 2),
    ),
    counter(
        "ebbtide_job_load_seconds_total", "seconds", "To fetch, load and probe them, all actors."
    ),
    counter("ebbtide_job_load_bytes_total", "bytes", "Their bytes."),
)
"""Counted by actors and handed on with their heartbeats: it outlives them."""
HANDED = {m.name.removeprefix("ebbtide_job_").removesuffix("_total"): m for m in _per_job(*_HANDED)}
"""By the names that actors give them."""

_MONEY = (
    counter(
        "ebbtide_job_held_seconds_total",
        "seconds",
        "Time that pods were held.",
        _ROLE,
        Label("pool", "node pool", 4),
    ),
    counter(
        "ebbtide_job_cause_seconds_total",
        "seconds",
        "Held time by cause; what no cause explains is unattributed.",
        _ROLE,
        _CAUSE,
    ),
    counter(
        "ebbtide_job_cost_total",
        "cost",
        "Money by cause; a role whose price is unknown has no series.",
        _ROLE,
        _CAUSE,
        CURRENCY,
    ),
    counter("ebbtide_job_unpriced_seconds_total", "seconds", "Held without a known price."),
    gauge("ebbtide_job_budget_cost", "cost", "budget.maxCost; no series without one.", CURRENCY),
    gauge(
        "ebbtide_job_reward_gain",
        "1",
        "Mean reward now less that of the first step; held-out reward where it is measured.",
    ),
)

_LEARNING = (
    gauge("ebbtide_train_reward", "1", "Mean reward.", trl="reward"),
    gauge("ebbtide_train_reward_std", "1", "Its standard deviation.", trl="reward_std"),
    gauge(
        "ebbtide_train_rewards_mean",
        "1",
        "Mean of a reward component before its weight.",
        Label("component", "a reward component of the job", 8),
        trl="rewards/<name>/mean",
    ),
    counter(
        "ebbtide_train_faulty_samples_total",
        "samples",
        "Samples by their own fault, such as a wrong format.",
        Label("fault", "a fault's name", 6),
    ),
    gauge(
        "ebbtide_train_frac_reward_zero_std",
        "1",
        "Share of groups whose rewards are all equal.",
        trl="frac_reward_zero_std",
    ),
    gauge(
        "ebbtide_train_completions_mean_length",
        "tokens",
        "Mean length of responses.",
        trl="completions/mean_length",
    ),
    gauge(
        "ebbtide_train_completions_max_length",
        "tokens",
        "Longest response.",
        trl="completions/max_length",
    ),
    gauge(
        "ebbtide_train_completions_clipped_ratio",
        "1",
        "Share of responses that the limit cut.",
        trl="completions/clipped_ratio",
    ),
    gauge("ebbtide_train_pass_ratio", "1", "Share of valued samples at the pass threshold."),
    gauge("ebbtide_train_timed_out_ratio", "1", "Share of valued samples whose scoring timed out."),
    gauge("ebbtide_train_temperature", "1", "Temperature of sampling."),
    gauge("ebbtide_train_limit_tokens", "tokens", "Limit of a response."),
    gauge("ebbtide_train_group_samples", "samples", "Samples of one prompt."),
    gauge(
        "ebbtide_train_sample_age_versions",
        "versions",
        "Versions between the policy of samples and the step's.",
        Label("stat", "mean, max", 2),
    ),
    gauge("ebbtide_train_loss", "1", "Loss of the last update.", trl="loss"),
    gauge("ebbtide_train_kl", "nats", "KL to the initial policy per token.", trl="kl"),
    gauge("ebbtide_train_entropy", "nats", "Entropy per token.", trl="entropy"),
    gauge("ebbtide_train_grad_norm", "1", "Norm of the gradient.", trl="grad_norm"),
    gauge("ebbtide_train_learning_rate", "1", "Learning rate.", trl="learning_rate"),
    gauge(
        "ebbtide_train_clip_ratio_low_mean",
        "1",
        "Share of tokens clipped below.",
        trl="clip_ratio/low_mean",
    ),
    gauge(
        "ebbtide_train_clip_ratio_high_mean",
        "1",
        "Share of tokens clipped above.",
        trl="clip_ratio/high_mean",
    ),
    gauge("ebbtide_train_ratio_max", "1", "Largest ratio of new to old probability."),
    gauge(
        "ebbtide_train_ratio",
        "1",
        "Ratio of new to old probability over tokens, in the last update of the batch.",
        Label("quantile", "0.01, 0.5, 0.99", 3),
    ),
    gauge(
        "ebbtide_train_advantage_std",
        "1",
        "Standard deviation of the advantages, over tokens that were computed.",
    ),
    gauge(
        "ebbtide_train_value_loss",
        "1",
        "Loss of the critic; only with one.",
        trl="loss/value_avg",
    ),
    gauge(
        "ebbtide_train_value_explained",
        "1",
        "Share of the returns' variance that the critic had foreseen; only with one.",
    ),
    gauge(
        "ebbtide_train_repeated_ngrams",
        "1",
        "Share of 4-grams that stand earlier in the same answer, over answers that were computed.",
    ),
    gauge(
        "ebbtide_train_mismatch_kl",
        "1",
        "KL(engine || learner) in nats per token, at equal weights.",
    ),
    gauge("ebbtide_train_mismatch_ess", "1", "Effective share of samples under that mismatch."),
    gauge("ebbtide_train_mismatch_correlation", "1", "Correlation of both log-probabilities."),
    counter("ebbtide_train_skipped_updates_total", "updates", "Updates that were not finite."),
    *_slices(
        ("reward", "1", "Mean reward"),
        ("pass_ratio", "1", "Share of valued samples at or above the pass threshold"),
        ("samples", "samples", "Accepted samples"),
        ("response_tokens", "tokens", "Mean length of responses"),
        ("truncated_ratio", "1", "Share of responses that the limit cut"),
        ("faulty_ratio", "1", "Share of answers with a fault of their own"),
    ),
    gauge("ebbtide_eval_reward", "1", "Mean held-out reward, last evaluation."),
    gauge("ebbtide_eval_pass_at_k", "1", "Share of held-out prompts with a passing sample."),
)

JOBS = Group(
    "jobs",
    "The gateway's GET /v1/metrics: figures of every job that runs or ended lately.",
    (
        gauge("ebbtide_jobs", "jobs", "Jobs by state.", NAMESPACE, Label("state", "a state", 8)),
        *_per_job(*_COURSE, *_PLANS, *_HANDED, *_MONEY, *_LEARNING),
    ),
)
