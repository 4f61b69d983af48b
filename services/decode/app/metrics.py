"""What an actor shows at /metrics."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ebbtide.metrics import SECONDS
from ebbtide.wire import Cut, EngineStats, Failed, PolicyRef
from services.decode.core.messages import Terminal

_SOURCES = {
    "computed": "prefill_tokens",
    "shared": "prefill_shared",
    "imported": "prefill_imported",
}


class DecodeMetrics:
    """Reasons of an end: stop | length | cut | a failure's code."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, what: str) -> Gauge:
            return Gauge(f"ebbtide_decode_{name}", what, registry=registry)

        self._running = gauge("running", "Samples that the engine decodes")
        self._waiting = gauge("waiting", "Samples that wait for a slot of the engine")
        self._lag = gauge("journal_lag_tokens", "Tokens drawn that the hot store lacks")
        self._outbox = gauge("outbox", "Terminal facts that the planner has not settled")
        self._policy = gauge("policy_version", "Version that is held; -1 for none")
        self._tokens = Counter("ebbtide_decode_tokens", "Tokens drawn", registry=registry)
        self._ended = Counter(
            "ebbtide_decode_ended", "Samples by how they ended here", ["reason"], registry=registry
        )
        self._load = Histogram(
            "ebbtide_decode_load_seconds",
            "Time to fetch, load and probe a policy",
            buckets=SECONDS,
            registry=registry,
        )
        self._load_failures = Counter(
            "ebbtide_decode_load_failures", "Policies that did not load", registry=registry
        )
        self._pulls = Counter(
            "ebbtide_decode_kv_pulls",
            "Tickets by what came of them",
            ["outcome"],
            registry=registry,
        )
        self._prefilled = Counter(
            "ebbtide_decode_prefill_tokens",
            "Tokens that samples needed prefilled: computed here, shared, or imported",
            ["source"],
            registry=registry,
        )
        self._prompts = Counter(
            "ebbtide_decode_prompt_kv",
            "Prompts that the prefill service was to have, by what came of them",
            ["outcome"],
            registry=registry,
        )
        self._exports = Counter(
            "ebbtide_decode_kv_exports", "Cuts with KV by outcome", ["outcome"], registry=registry
        )
        self._moved = Counter(
            "ebbtide_decode_kv_bytes", "KV handed over", ["direction"], registry=registry
        )
        self._pull_seconds = Histogram(
            "ebbtide_decode_kv_pull_seconds",
            "Time to pull KV that was imported",
            buckets=SECONDS,
            registry=registry,
        )
        self._drawn = 0
        self._filled = EngineStats()
        self._policy.set(-1)

    def seen(
        self, stats: EngineStats, *, policy: PolicyRef | None, unjournalled: int, outbox: int
    ) -> None:
        """Show the actor as it is now."""
        self._running.set(stats.running)
        self._waiting.set(stats.waiting)
        self._lag.set(unjournalled)
        self._outbox.set(outbox)
        self._policy.set(policy.n if policy else -1)
        self._tokens.inc(max(0, stats.decode_tokens - self._drawn))
        self._drawn = max(self._drawn, stats.decode_tokens)
        for source, name in _SOURCES.items():
            more = getattr(stats, name) - getattr(self._filled, name)
            self._prefilled.labels(source).inc(max(0, more))
        self._filled = stats

    def ended(self, facts: Sequence[Terminal]) -> None:
        """Count samples that have just ended."""
        for fact in facts:
            self._ended.labels(_reason(fact)).inc()

    def pulled(self, outcome: str, size: int, seconds: float) -> None:
        """A ticket was used, or could not be. outcome: imported | miss | expired."""
        self._pulls.labels(outcome).inc()
        self._moved.labels("in").inc(size)
        if size:
            self._pull_seconds.observe(seconds)

    def prompt(self, outcome: str, size: int = 0) -> None:
        """A prompt was asked for. outcome: imported | miss | expired | refused | silent | unfit."""
        self._prompts.labels(outcome).inc()
        self._moved.labels("in").inc(size)

    def exported(self, size: int) -> None:
        """KV of so many bytes is held for a reader; 0: it could not be."""
        self._exports.labels("held" if size else "failed").inc()
        self._moved.labels("out").inc(size)

    def loaded(self, seconds: float) -> None:
        """A policy was loaded in so many seconds."""
        self._load.observe(seconds)

    def not_loaded(self) -> None:
        """A policy could not be loaded."""
        self._load_failures.inc()


def _reason(fact: Terminal) -> str:
    match fact:
        case Cut():
            return "cut"
        case Failed(code=code):
            return code
        case _:
            return fact.finish
