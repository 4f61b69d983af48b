"""What a planner counts, for Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ebbtide.metrics import SECONDS
from ebbtide.reports import DecisionReport, MigrationReport
from services.planner.core.progress import Standing


class PlannerMetrics:
    """Metrics of one planner process."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._records = Counter(
            "ebbtide_planner_records", "Records appended to the ledger.", registry=registry
        )
        self._append = Histogram(
            "ebbtide_planner_append_seconds",
            "Time to make one ledger segment durable.",
            buckets=SECONDS,
            registry=registry,
        )
        self._events = Counter(
            "ebbtide_planner_events", "Events that the core took in.", ["kind"], registry=registry
        )
        self._core = Counter(
            "ebbtide_planner_core_seconds", "Time spent in the core.", registry=registry
        )
        self._step = Gauge("ebbtide_job_step", "Committed steps.", registry=registry)
        self._reward = Gauge("ebbtide_job_reward", "Mean reward, last step.", registry=registry)
        self._eval = Gauge("ebbtide_job_eval_reward", "Mean held-out reward.", registry=registry)
        self._samples = Gauge(
            "ebbtide_job_samples",
            "Samples of the open step by where they are.",
            ["state"],
            registry=registry,
        )
        self._actors = Gauge("ebbtide_job_actors", "Registered actors.", registry=registry)
        self._wanted = Gauge("ebbtide_job_actors_wanted", "Actors of the plan.", registry=registry)
        self._predicted = Gauge(
            "ebbtide_planner_predicted", "As predicted, last step.", ["what"], registry=registry
        )
        self._realised = Gauge(
            "ebbtide_planner_realised", "As it came, last step.", ["what"], registry=registry
        )
        self._calibration = Gauge(
            "ebbtide_planner_lengths",
            "How good the forecast of lengths was, last step.",
            ["figure"],
            registry=registry,
        )

        self._moves = Counter(
            "ebbtide_planner_moves",
            "Samples that were to move while they ran, by what came of it.",
            ["outcome"],
            registry=registry,
        )
        self._moved_kv = Counter(
            "ebbtide_planner_moved_kv_tokens",
            "Tokens whose KV moved samples had tickets for.",
            registry=registry,
        )
        self._pauses = Counter(
            "ebbtide_planner_move_seconds",
            "Time from orders until moved samples were seen with their targets.",
            registry=registry,
        )

    def appended(self, records: int, seconds: float) -> None:
        """A segment is durable."""
        self._records.inc(records)
        self._append.observe(seconds)

    def stepped(self, kind: str, seconds: float) -> None:
        """The core took in an event."""
        self._events.labels(kind).inc()
        self._core.inc(seconds)

    def decided(self, decision: DecisionReport | None) -> None:
        """A step is over: what was predicted of it, and what came."""
        if decision is None:
            return
        self._wanted.set(decision.actors)
        for what in ("decode_seconds", "step_seconds", "actor_seconds"):
            _set(self._predicted, what, getattr(decision, f"predicted_{what}"))
        _set(self._realised, "decode_seconds", decision.realised_decode_seconds)
        _set(self._realised, "step_seconds", decision.realised_step_seconds)
        _set(self._realised, "actor_seconds", decision.realised_busy_seconds)
        for figure in ("coverage_p50", "coverage_p90", "mae", "rank", "tail_recall"):
            found = decision.calibration
            _set(self._calibration, figure, getattr(found, figure) if found else None)

    def moved(self, migration: MigrationReport | None) -> None:
        """A step is over: what became of samples that were to move."""
        if migration is None:
            return
        for outcome in ("with_kv", "recomputed", "finished", "failed"):
            self._moves.labels(outcome).inc(getattr(migration, outcome))
        self._moved_kv.inc(migration.kv_tokens)
        self._pauses.inc(migration.pause_seconds)

    def stands(self, standing: Standing) -> None:
        """How far the job is."""
        self._step.set(standing.step)
        self._actors.set(standing.actors)
        if standing.reward is not None:
            self._reward.set(standing.reward)
        if standing.eval_reward is not None:
            self._eval.set(standing.eval_reward)
        for state in ("expected", "accepted", "scored", "abandoned", "invalid"):
            self._samples.labels(state).set(getattr(standing, f"samples_{state}"))


def _set(gauge: Gauge, label: str, value: float | None) -> None:
    """What is unknown shows no value, not an old one."""
    if value is None:
        gauge.labels(label).set(float("nan"))
    else:
        gauge.labels(label).set(value)
