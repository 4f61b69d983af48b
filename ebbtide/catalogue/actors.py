"""Metrics of what computes: decode actors, the prefill service, scorers, the learner (pure)."""

from __future__ import annotations

from ebbtide.catalogue.base import SECONDS, Group, Label, counter, gauge, histogram, summary

_COMPONENT = Label("component", "a reward component of the job", 8)
_QUICK = (1e-5, 1e-4, 1e-3, *SECONDS)
_VALUES = (-1.0, -0.5, 0.0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.0)

DECODE = Group(
    "decode",
    "Each decode actor. Sums and counts instead of histograms: there are many actors.",
    (
        gauge("ebbtide_decode_running_samples", "samples", "Samples that the engine decodes."),
        gauge("ebbtide_decode_waiting_samples", "samples", "Samples that wait for a slot."),
        gauge("ebbtide_decode_kv_used_tokens", "tokens", "Tokens whose KV the engine holds."),
        gauge("ebbtide_decode_kv_capacity_tokens", "tokens", "Tokens that fit; 0: unbounded."),
        gauge(
            "ebbtide_decode_token_seconds",
            "seconds",
            "Seconds per output token of a running sample, lately.",
        ),
        gauge(
            "ebbtide_decode_journal_lag_tokens",
            "tokens",
            "Tokens drawn that the hot store lacks: a crash now would lose so many.",
        ),
        gauge("ebbtide_decode_outbox_facts", "facts", "Facts that the planner has not settled."),
        gauge("ebbtide_decode_policy_version", "version", "Version that is held; -1: none."),
        counter("ebbtide_decode_tokens_total", "tokens", "Tokens drawn."),
        counter(
            "ebbtide_decode_ended_samples_total",
            "samples",
            "Samples by how they ended here.",
            Label("reason", "stop, length, cut, or a failure's code", 8),
        ),
        summary("ebbtide_decode_load_seconds", "seconds", "To fetch, load and probe a policy."),
        counter("ebbtide_decode_load_failures_total", "failures", "Policies that did not load."),
        counter(
            "ebbtide_decode_prefill_tokens_total",
            "tokens",
            "Tokens that samples needed prefilled, by where they came from.",
            Label("source", "computed, shared, imported", 3),
        ),
        gauge("ebbtide_decode_kv_held_exports", "exports", "Exports that may still be read."),
        gauge(
            "ebbtide_decode_kv_transfer_ways",
            "ways",
            "1: KV is not handed over as was asked for; no series where it is.",
            Label("asked", "shm, nixl, none", 1),
            Label("used", "shm, nixl, none", 1),
        ),
    ),
    per_actor=True,
)

PREFILL = Group(
    "prefill",
    "The prefill service of a job that has one.",
    (
        gauge("ebbtide_prefill_waiting_requests", "requests", "Requests without an answer."),
        gauge("ebbtide_prefill_held_exports", "exports", "Exports that may still be read."),
        gauge("ebbtide_prefill_policy_version", "version", "Version that is held; -1: none."),
        counter(
            "ebbtide_prefill_requests_total",
            "requests",
            "Requests by answer.",
            Label("answer", "granted, or a refusal's code", 9),
        ),
        counter("ebbtide_prefill_prompts_total", "prompts", "Prompts computed."),
        counter("ebbtide_prefill_tokens_total", "tokens", "Prompt tokens computed."),
        counter(
            "ebbtide_prefill_shared_tokens_total",
            "tokens",
            "Prompt tokens taken from prompts that begin alike.",
        ),
        counter(
            "ebbtide_prefill_granted_tokens_total",
            "tokens",
            "Prompt tokens that readers need not compute.",
        ),
        histogram("ebbtide_prefill_prompt_seconds", "seconds", "To compute a prompt."),
        counter(
            "ebbtide_prefill_loads_total",
            "loads",
            "Tries to load a policy.",
            Label("outcome", "loaded, failed", 2),
        ),
    ),
)

REWARD = Group(
    "reward",
    "Each scorer process.",
    (
        histogram(
            "ebbtide_reward_component_value",
            "1",
            "Value of a component before its weight.",
            _COMPONENT,
            buckets=_VALUES,
        ),
        histogram(
            "ebbtide_reward_component_seconds",
            "seconds",
            "To judge one answer by one component.",
            _COMPONENT,
            buckets=_QUICK,
        ),
        counter(
            "ebbtide_reward_component_failures_total",
            "failures",
            "Answers for which a component had no value, or found a fault.",
            _COMPONENT,
            Label("kind", "invalid, error, or a fault's name", 6),
        ),
        counter(
            "ebbtide_reward_scores_total",
            "scores",
            "Scores published.",
            Label("outcome", "value, invalid, error", 3),
            Label("fault", "empty, or a fault's name", 4),
        ),
        counter(
            "ebbtide_reward_turns_total",
            "turns",
            "Turns after which the environment was asked, by what came of it.",
            Label("outcome", "reply, over, full, invalid, error, value", 6),
        ),
        counter(
            "ebbtide_reward_errors_total",
            "errors",
            "Failed tries, repeated or not.",
            Label("class", "class of the error", 8),
        ),
        gauge("ebbtide_reward_in_flight_samples", "samples", "Answers taken and not settled."),
        gauge("ebbtide_reward_breaker_open", "1", "1 while intake is stopped by errors."),
    ),
)

LEARNER = Group(
    "learner",
    "Rank 0 of the learner gang. What an update tells is in the figures of the job.",
    (
        counter(
            "ebbtide_learner_orders_total",
            "orders",
            "Work that ended.",
            Label("outcome", "learned, saved, or a refusal's code", 9),
        ),
        histogram(
            "ebbtide_learner_order_seconds",
            "seconds",
            "Time of one piece of work.",
            Label("outcome", "learned, saved", 2),
        ),
        gauge("ebbtide_learner_policy_version", "version", "Version that is published."),
    ),
)
