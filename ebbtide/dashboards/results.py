"""Boards of what a job brings and costs (pure)."""

from __future__ import annotations

from ebbtide.dashboards.base import JOB, Board, panel

_EVAL = "the job has an evaluation set."
_CRITIC = "the job's algorithm is ppo."
_FAULTS = "an answer had a fault that its reward names."
_FAILURES = "a reward component failed on an answer."
_TRIES = "a worker, a store or an address that scoring needs has failed."

_MEAN = ("Reward", "reward", "short", "Mean")
_COUNT = ("Samples", "samples", "short", "Accepted samples")
_TOKENS = ("Tokens", "response_tokens", "short", "Mean length")
_CUT = ("Truncated", "truncated_ratio", "percentunit", "Share that the limit cut")
_PASSED = ("Pass rate", "pass_ratio", "percentunit", "Share that passes")
_FAULTY = ("Faulty", "faulty_ratio", "percentunit", "Share with a fault of their own")
_SLICED = {
    "task": (_MEAN, _PASSED, _COUNT, _TOKENS, _CUT, _FAULTY),
    "length": (_MEAN, _PASSED, _COUNT),
    "reward": (_MEAN, _PASSED),
    "prompts": (_MEAN, _PASSED),
    "age": (_MEAN, _COUNT),
    "sign": (_TOKENS,),
}

LEARNING = Board(
    "ebbtide-learning",
    "ebbtide / Learning",
    "Whether it learns, and whether the data are sound. Values are those of the last step.",
    (
        panel(
            "Reward",
            "short",
            "Mean of the training samples, and its standard deviation.",
            (f"ebbtide_train_reward{{{JOB}}}", "mean"),
            (f"ebbtide_train_reward_std{{{JOB}}}", "deviation"),
        ),
        panel(
            "Reward components",
            "short",
            "Mean of each before its weight.",
            (f"ebbtide_train_rewards_mean{{{JOB}}}", "{{component}}"),
        ),
        panel(
            "Held-out reward",
            "short",
            "Mean, and share of prompts with a passing sample.",
            (f"ebbtide_eval_reward{{{JOB}}}", "mean"),
            (f"ebbtide_eval_pass_at_k{{{JOB}}}", "pass@k"),
            needs=_EVAL,
        ),
        panel(
            "KL to the initial policy",
            "short",
            "Nats per token.",
            (f"ebbtide_train_kl{{{JOB}}}", "KL"),
        ),
        panel(
            "Entropy",
            "short",
            "Nats per token.",
            (f"ebbtide_train_entropy{{{JOB}}}", "entropy"),
        ),
        panel(
            "Loss",
            "short",
            "Of the last update.",
            (f"ebbtide_train_loss{{{JOB}}}", "loss"),
        ),
        panel(
            "Gradient norm",
            "short",
            "Before it is clipped.",
            (f"ebbtide_train_grad_norm{{{JOB}}}", "norm"),
        ),
        panel(
            "Learning rate",
            "sci",
            "Of the last update.",
            (f"ebbtide_train_learning_rate{{{JOB}}}", "rate"),
        ),
        panel(
            "Ratios",
            "short",
            "Of new to old probability over tokens: quantiles and the largest. 1 where a batch is"
            " used for one update.",
            (f"ebbtide_train_ratio{{{JOB}}}", "{{quantile}}"),
            (f"ebbtide_train_ratio_max{{{JOB}}}", "largest"),
        ),
        panel(
            "Clipped tokens",
            "percentunit",
            "Share of tokens whose ratio was clipped.",
            (f"ebbtide_train_clip_ratio_low_mean{{{JOB}}}", "clipped below"),
            (f"ebbtide_train_clip_ratio_high_mean{{{JOB}}}", "clipped above"),
        ),
        panel(
            "Engine against learner: KL",
            "short",
            "Nats per token at equal weights; anything but small is a fault.",
            (f"ebbtide_train_mismatch_kl{{{JOB}}}", "KL"),
        ),
        panel(
            "Engine against learner: samples of use",
            "percentunit",
            "Effective share of samples, and correlation of both log-probabilities.",
            (f"ebbtide_train_mismatch_ess{{{JOB}}}", "effective"),
            (f"ebbtide_train_mismatch_correlation{{{JOB}}}", "correlation"),
        ),
        panel(
            "Advantages",
            "short",
            "Standard deviation over tokens that were computed.",
            (f"ebbtide_train_advantage_std{{{JOB}}}", "deviation"),
        ),
        panel(
            "Critic",
            "short",
            "Value loss, and the share of the returns' variance that it had foreseen.",
            (f"ebbtide_train_value_loss{{{JOB}}}", "loss"),
            (f"ebbtide_train_value_explained{{{JOB}}}", "explained"),
            needs=_CRITIC,
        ),
        panel(
            "Repeated 4-grams",
            "percentunit",
            "Share of those that stand earlier in the same answer: a policy that loops repeats itself.",
            (f"ebbtide_train_repeated_ngrams{{{JOB}}}", "repeated"),
        ),
        panel(
            "Updates that were not finite",
            "short",
            "They are left out.",
            (f"ebbtide_train_skipped_updates_total{{{JOB}}}", "skipped"),
        ),
        panel(
            "Pass rate",
            "percentunit",
            "Share of valued training samples at or above the pass threshold.",
            (f"ebbtide_train_pass_ratio{{{JOB}}}", "passed"),
        ),
        panel(
            "Sampling",
            "short",
            "Settings of the last step: temperature, limit of a response, samples of a prompt.",
            (f"ebbtide_train_temperature{{{JOB}}}", "temperature"),
            (f"ebbtide_train_limit_tokens{{{JOB}}}", "limit"),
            (f"ebbtide_train_group_samples{{{JOB}}}", "group"),
        ),
        panel(
            "Age of samples",
            "short",
            "Versions between the policy that drew them and the step's.",
            (f"ebbtide_train_sample_age_versions{{{JOB}}}", "{{stat}}"),
        ),
        panel(
            "Lengths of responses",
            "short",
            "Mean and longest, tokens.",
            (f"ebbtide_train_completions_mean_length{{{JOB}}}", "mean"),
            (f"ebbtide_train_completions_max_length{{{JOB}}}", "longest"),
        ),
        panel(
            "Truncated, timed out, and groups without a difference",
            "percentunit",
            "Share of responses that the limit cut, of answers whose scoring timed out, and of groups"
            " whose rewards are equal.",
            (f"ebbtide_train_completions_clipped_ratio{{{JOB}}}", "truncated"),
            (f"ebbtide_train_timed_out_ratio{{{JOB}}}", "timed out"),
            (f"ebbtide_train_frac_reward_zero_std{{{JOB}}}", "all equal"),
        ),
        *(
            panel(
                f"{what} by {words}",
                unit,
                f"{about}, last step, training samples.",
                (f'ebbtide_slice_{name}{{{JOB},by="{by}"}}', "{{value}}"),
            )
            for by, words in (
                ("task", "task"),
                ("length", "length"),
                ("reward", "reward version"),
                ("prompts", "prompt set"),
                ("age", "age of the policy"),
                ("sign", "sign of the reward"),
            )
            for what, name, unit, about in _SLICED[by]
        ),
        panel(
            "Scores",
            "short",
            "Scores by outcome.",
            (f"sum by (outcome) (ebbtide_reward_scores_total{{{JOB}}})", "{{outcome}}"),
        ),
        panel(
            "Faults of answers",
            "short",
            "Samples by their own fault, such as a wrong format.",
            (f"ebbtide_train_faulty_samples_total{{{JOB}}}", "{{fault}}"),
            needs=_FAULTS,
        ),
        panel(
            "Reward errors",
            "short",
            "Answers for which a component had no value.",
            (
                f"sum by (component, kind) (ebbtide_reward_component_failures_total{{{JOB}}})",
                "{{component}} {{kind}}",
            ),
            needs=_FAILURES,
        ),
        panel(
            "Tries that failed",
            "short",
            "Answers that come again because scoring failed, by the error's class.",
            (f"sum by (class) (ebbtide_reward_errors_total{{{JOB}}})", "{{class}}"),
            needs=_TRIES,
        ),
        panel(
            "Scoring stopped",
            "short",
            "1 while a scorer takes no work, after too many errors.",
            (f"ebbtide_reward_breaker_open{{{JOB}}}", "{{pod}}"),
        ),
    ),
    links=("ebbtide-job", "ebbtide-cost"),
)

_WHOLE = f"sum(ebbtide_job_cost_total{{{JOB}}})"
_CAUSES = f"sum by (cause) (ebbtide_job_cause_seconds_total{{{JOB}}})"
_UNPRICED = "the job has prices for its pools."

COST = Board(
    "ebbtide-cost",
    "ebbtide / Cost",
    "Held time and money by cause. Amounts are in the job's currency; what has no price is shown"
    " as seconds without one, never as 0.",
    (
        panel(
            "Cost so far",
            "short",
            "Of everything that has a price.",
            (f"sum by (currency) (ebbtide_job_cost_total{{{JOB}}})", "{{currency}}"),
            kind="stat",
            needs=_UNPRICED,
        ),
        panel(
            "Cost per step",
            "short",
            "So far, start-up included.",
            (f"{_WHOLE} / sum(ebbtide_job_steps_total{{{JOB}}})", "per step"),
            kind="stat",
            needs=_UNPRICED,
        ),
        panel(
            "Cost per 1,000 accepted tokens",
            "short",
            "Response tokens of accepted samples.",
            (
                f'1000 * {_WHOLE} / sum(ebbtide_job_tokens_total{{{JOB},kind="response"}})',
                "per 1,000",
            ),
            kind="stat",
            needs=_UNPRICED,
        ),
        panel(
            "Cost per reward point",
            "short",
            "Of the reward gained since the first step; nothing is shown while nothing is gained.",
            (f"{_WHOLE} / (sum(ebbtide_job_reward_gain{{{JOB}}}) > 0)", "per point"),
            kind="stat",
            needs="the job has prices, and its reward has risen.",
        ),
        panel(
            "Share of the budget",
            "percentunit",
            "Spent of budget.maxCost.",
            (f"{_WHOLE} / sum(ebbtide_job_budget_cost{{{JOB}}})", "spent"),
            kind="stat",
            needs="the job has a budget.",
        ),
        panel(
            "Held without a price",
            "s",
            "Seconds of pools that spec.prices does not list.",
            (f"ebbtide_job_unpriced_seconds_total{{{JOB}}}", "seconds"),
            kind="stat",
        ),
        panel(
            "Cost by role",
            "short",
            "So far.",
            (f"sum by (role) (ebbtide_job_cost_total{{{JOB}}})", "{{role}}"),
            needs=_UNPRICED,
        ),
        panel(
            "Cost by cause",
            "short",
            "So far.",
            (f"sum by (cause) (ebbtide_job_cost_total{{{JOB}}})", "{{cause}}"),
            needs=_UNPRICED,
        ),
        panel(
            "Idle seconds by cause",
            "s",
            "Held time of all roles in which nothing was computed.",
            (
                f'sum by (role, cause) (ebbtide_job_cause_seconds_total{{{JOB},cause!="busy"}})',
                "{{role}} {{cause}}",
            ),
        ),
        panel(
            "Held time by cause",
            "s",
            "All roles.",
            (_CAUSES, "{{cause}}"),
        ),
        panel(
            "Held time by role and pool",
            "s",
            "As the operator measured it.",
            (
                f"sum by (role, pool) (ebbtide_job_held_seconds_total{{{JOB}}})",
                "{{role}} {{pool}}",
            ),
        ),
        panel(
            "Wasted tokens",
            "percentunit",
            "Share of drawn tokens that were for nothing.",
            (
                (
                    f'sum(ebbtide_job_tokens_total{{{JOB},kind="wasted"}})'
                    f' / sum(ebbtide_job_tokens_total{{{JOB},kind=~"wasted|response"}})'
                ),
                "wasted",
            ),
        ),
    ),
    links=("ebbtide-job", "ebbtide-fleet"),
)
