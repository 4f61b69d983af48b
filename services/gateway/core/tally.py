"""Sums over a job's step reports, as its figures show them (pure).

A report counts once it is of a committed step; reports of steps that a restart undid are left out
until they are written anew, so totals are those of the steps that count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from ebbtide.catalogue import HANDED, Metric
from ebbtide.reports import MigrationReport, StepReport

_JOB_LABELS = 2
"""Those that name the job."""


class Point(msgspec.Struct, frozen=True):
    """One value of one metric of the catalogue; labels without those that name the job."""

    name: str
    value: float
    labels: tuple[str, ...] = ()


class StepMark(msgspec.Struct, frozen=True):
    """What is kept of each step. Times are Unix seconds of the commits before it and of it."""

    start: float
    end: float
    tokens: int
    reward: float | None
    held_out: float | None


class Gains(msgspec.Struct, frozen=True):
    """What steps brought: accepted response tokens, and reward gained (None: not measured)."""

    steps: int = 0
    tokens: int = 0
    reward: float | None = None


class Tally:
    """What the reports add up to. `attempt`: all were counted while the job was in this one."""

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.steps: dict[int, StepMark] = {}
        self._last: StepReport | None = None
        self._evaluated: StepReport | None = None
        self._sums: defaultdict[tuple[str, tuple[str, ...]], float] = defaultdict(float)

    def add(self, report: StepReport) -> None:
        """Count one more step; steps come in order."""
        self.steps[report.step] = _mark(report)
        self._last = report
        self._evaluated = report if report.evaluation else self._evaluated
        for point in _added(report):
            self._sums[point.name, point.labels] += point.value

    def gains(self, steps: range | None = None) -> Gains:
        """Of some steps, or of all."""
        marks = [mark for n, mark in self.steps.items() if steps is None or n in steps]
        return Gains(len(marks), sum(mark.tokens for mark in marks), _gain(marks))

    def points(self) -> Iterator[Point]:
        """Sums, and the last step's values."""
        for (name, labels), value in self._sums.items():
            yield Point(name, value, labels)
        if self._last is not None:
            yield from _now(self._last)
        if self._evaluated is not None and self._evaluated.evaluation:
            yield Point("ebbtide_eval_reward", self._evaluated.evaluation.mean)
            yield Point("ebbtide_eval_pass_at_k", self._evaluated.evaluation.pass_at_k)
        gain = _gain(list(self.steps.values()))
        if gain is not None:
            yield Point("ebbtide_job_reward_gain", gain)


def counts(report: StepReport, *, attempt: int, committed: int) -> bool:
    """Whether the report is of a step that counts: of this attempt, or committed before it."""
    return report.attempt == attempt or report.step < committed


def _mark(report: StepReport) -> StepMark:
    start = report.started_at - report.phases.plan
    return StepMark(
        start=start,
        end=start + report.seconds,
        tokens=report.tokens.response,
        reward=report.rewards.mean if report.rewards else None,
        held_out=report.evaluation.mean if report.evaluation else None,
    )


def _gain(marks: Sequence[StepMark]) -> float | None:
    """Last less first: of held-out reward where it was measured twice, else of training reward."""
    for found in ([m.held_out for m in marks], [m.reward for m in marks]):
        known = [value for value in found if value is not None]
        if len(known) > 1:
            return known[-1] - known[0]
    return None


# --- what a step adds -------------------------------------------------------------------------


def _added(report: StepReport) -> Iterator[Point]:
    samples, tokens = report.samples, report.tokens
    yield Point("ebbtide_job_steps_total", 1.0)
    yield Point("ebbtide_job_expected_samples_total", samples.expected)
    yield from _each(
        "ebbtide_job_samples_total",
        {o: getattr(samples, o) for o in ("valued", "invalid", "abandoned")},
    )
    dispatched = {kind: getattr(samples, kind) for kind in ("resumed", "restarted", "void")}
    yield from _each("ebbtide_job_dispatches_total", {"all": samples.dispatches} | dispatched)
    yield from _each("ebbtide_job_phase_seconds_total", report.phases.model_dump())
    used = {kind: getattr(tokens, kind) for kind in ("prompt", "response", "wasted")}
    trained = report.learner.tokens if report.learner else 0
    yield from _each("ebbtide_job_tokens_total", used | {"trained": trained})
    prefill = report.prefill.model_dump()
    kinds = ("needed", "computed", "in_service", "saved_by_caching", "saved_by_dedup")
    yield from _each("ebbtide_job_prefill_tokens_total", {k: max(0, prefill[k]) for k in kinds})
    for name, labels in report.counted.items():
        if metric := HANDED.get(name):
            yield from _counted(metric, labels)
    if report.decision:
        yield Point("ebbtide_job_decisions_total", 1.0, (report.decision.rule,))
    if report.migration:
        yield from _moves(report.migration)
    if report.rewards:
        yield from _each("ebbtide_train_faulty_samples_total", report.rewards.faults)
    if report.learner:
        skipped = report.learner.stats.get("skipped_updates", 0.0)
        yield Point("ebbtide_train_skipped_updates_total", skipped)


def _counted(metric: Metric, values: Mapping[str, float]) -> Iterator[Point]:
    own = len(metric.label_names) > _JOB_LABELS
    return (Point(metric.name, v, (label,) if own else ()) for label, v in values.items())


def _moves(moved: MigrationReport) -> Iterator[Point]:
    for result in ("with_kv", "recomputed", "finished", "failed"):
        labels = (moved.rule, result)
        yield Point("ebbtide_job_migrated_samples_total", getattr(moved, result), labels)
    yield Point("ebbtide_job_migrated_kv_tokens_total", moved.kv_tokens)
    yield Point("ebbtide_job_migrated_kv_bytes_total", moved.kv_bytes or 0)
    yield Point("ebbtide_job_migration_pause_seconds_total", moved.pause_seconds)


def _each(name: str, values: Mapping[str, float]) -> Iterator[Point]:
    return (Point(name, value, (label,)) for label, value in values.items())


# --- how the last step was ----------------------------------------------------------------------

_STATS = {
    "loss": "ebbtide_train_loss",
    "kl": "ebbtide_train_kl",
    "entropy": "ebbtide_train_entropy",
    "grad_norm": "ebbtide_train_grad_norm",
    "learning_rate": "ebbtide_train_learning_rate",
    "clip_fraction_low": "ebbtide_train_clip_ratio_low_mean",
    "clip_fraction_high": "ebbtide_train_clip_ratio_high_mean",
    "ratio_max": "ebbtide_train_ratio_max",
    "advantage_std": "ebbtide_train_advantage_std",
    "value_loss": "ebbtide_train_value_loss",
    "value_explained": "ebbtide_train_value_explained",
    "repeated_ngrams": "ebbtide_train_repeated_ngrams",
    "mismatch_kl": "ebbtide_train_mismatch_kl",
    "mismatch_ess": "ebbtide_train_mismatch_ess",
    "mismatch_correlation": "ebbtide_train_mismatch_correlation",
    "publish_seconds": "ebbtide_job_publish_seconds",
    "publish_bytes": "ebbtide_job_publish_bytes",
}
_RATIOS = {"ratio_p01": "0.01", "ratio_p50": "0.5", "ratio_p99": "0.99"}


def _now(report: StepReport) -> Iterator[Point]:
    yield Point("ebbtide_job_step_seconds", report.seconds)
    yield Point("ebbtide_job_policy_version", report.next_policy)
    yield from _lengths(report)
    yield from _rewards(report)
    yield from _sampling(report)
    yield from _sliced(report)
    yield from _plan(report)
    stats = report.learner.stats if report.learner else {}
    for stat, name in _STATS.items():
        if stat in stats:
            yield Point(name, stats[stat])
    ratios = {quantile: stats[stat] for stat, quantile in _RATIOS.items() if stat in stats}
    yield from _each("ebbtide_train_ratio", ratios)


def _lengths(report: StepReport) -> Iterator[Point]:
    tokens, accepted = report.tokens, report.samples.accepted
    if not accepted:
        return
    yield from _each("ebbtide_job_response_tokens", {"p50": tokens.p50, "p90": tokens.p90})
    yield Point("ebbtide_train_completions_mean_length", tokens.mean)
    yield Point("ebbtide_train_completions_max_length", tokens.longest)
    yield Point("ebbtide_train_completions_clipped_ratio", tokens.truncated / accepted)


def _rewards(report: StepReport) -> Iterator[Point]:
    if report.rewards:
        yield Point("ebbtide_train_reward", report.rewards.mean)
        yield Point("ebbtide_train_reward_std", report.rewards.std)
        yield from _each("ebbtide_train_rewards_mean", report.rewards.components)
        if report.rewards.pass_rate is not None:
            yield Point("ebbtide_train_pass_ratio", report.rewards.pass_rate)
        if report.rewards.timed_out is not None:
            yield Point("ebbtide_train_timed_out_ratio", report.rewards.timed_out)
    if report.groups.trained:
        flat = report.groups.zero_variance / report.groups.trained
        yield Point("ebbtide_train_frac_reward_zero_std", flat)


def _sampling(report: StepReport) -> Iterator[Point]:
    if found := report.sampling:
        yield Point("ebbtide_train_temperature", found.temperature)
        yield Point("ebbtide_train_limit_tokens", found.max_new_tokens)
        yield Point("ebbtide_train_group_samples", found.group_size)
        ages = {"mean": found.age, "max": found.oldest}
        yield from _each("ebbtide_train_sample_age_versions", ages)


def _sliced(report: StepReport) -> Iterator[Point]:
    for one in report.slices:
        values = {
            "samples": one.samples,
            "response_tokens": one.tokens,
            "truncated_ratio": one.truncated / one.samples,
            "faulty_ratio": one.faulty / one.samples,
        }
        known = values
        if one.reward is not None:
            known = values | {"reward": one.reward, "pass_ratio": one.passed / one.valued}
        for name, value in known.items():
            yield Point(f"ebbtide_slice_{name}", value, (one.by, one.value))


def _plan(report: StepReport) -> Iterator[Point]:
    decision = report.decision
    if decision is None:
        return
    yield Point("ebbtide_job_planned_actors", decision.actors)
    yield Point("ebbtide_job_serving_actors", decision.serving)
    predicted = {
        "decode": decision.predicted_decode_seconds,
        "step": decision.predicted_step_seconds,
        "actor": decision.predicted_actor_seconds,
    }
    known = {what: seconds for what, seconds in predicted.items() if seconds is not None}
    yield from _each("ebbtide_job_predicted_seconds", known)
    realised = {
        "decode": decision.realised_decode_seconds,
        "step": decision.realised_step_seconds,
        "actor": decision.realised_busy_seconds,
    }
    yield from _each("ebbtide_job_realised_seconds", realised)
    currency = (report.cost.currency,)
    for candidate in decision.candidates:
        if candidate.chosen and candidate.cost is not None:
            yield Point("ebbtide_job_predicted_cost", candidate.cost, currency)
    costs = [entry.cost for entry in report.cost.entries if entry.role == "decode"]
    if costs and None not in costs:
        yield Point("ebbtide_job_realised_cost", sum(c for c in costs if c is not None), currency)
    yield from _forecast(report)


def _forecast(report: StepReport) -> Iterator[Point]:
    found = report.decision.calibration if report.decision else None
    if found is None:
        return
    values = {
        ("ebbtide_job_length_error_tokens", ()): found.mae,
        ("ebbtide_job_length_coverage", ("0.5",)): found.coverage_p50,
        ("ebbtide_job_length_coverage", ("0.9",)): found.coverage_p90,
        ("ebbtide_job_length_tail_recall", ()): found.tail_recall,
    }
    for (name, labels), value in values.items():
        if value is not None:
            yield Point(name, value, labels)
