"""What an actor shows at /metrics."""

from __future__ import annotations

from collections.abc import Sequence

from prometheus_client import CollectorRegistry

from ebbtide.catalogue import DECODE, Instruments
from ebbtide.wire import Cut, EngineStats, Failed, PolicyRef
from services.decode.core.messages import Terminal
from services.decode.core.totals import Totals

_SOURCES = {
    "computed": "prefill_tokens",
    "shared": "prefill_shared",
    "imported": "prefill_imported",
}


class DecodeMetrics:
    """Reasons of an end: stop | length | cut | a failure's code.

    `totals`: what heartbeats hand on, counted here whether or not anybody asks for metrics.
    `ways`: how KV was to be handed over, and how it is; shown if they differ.
    """

    def __init__(
        self, registry: CollectorRegistry, *, ways: tuple[str, str] = ("none", "none")
    ) -> None:
        make = Instruments(registry, DECODE)
        self.totals = Totals()
        self._running = make.gauge("ebbtide_decode_running_samples")
        self._waiting = make.gauge("ebbtide_decode_waiting_samples")
        self._kv_used = make.gauge("ebbtide_decode_kv_used_tokens")
        self._kv_capacity = make.gauge("ebbtide_decode_kv_capacity_tokens")
        self._pace = make.gauge("ebbtide_decode_token_seconds")
        self._lag = make.gauge("ebbtide_decode_journal_lag_tokens")
        self._outbox = make.gauge("ebbtide_decode_outbox_facts")
        self._policy = make.gauge("ebbtide_decode_policy_version")
        self._tokens = make.counter("ebbtide_decode_tokens_total")
        self._ended = make.counter("ebbtide_decode_ended_samples_total")
        self._load = make.summary("ebbtide_decode_load_seconds")
        self._load_failures = make.counter("ebbtide_decode_load_failures_total")
        self._prefilled = make.counter("ebbtide_decode_prefill_tokens_total")
        self._held = make.gauge("ebbtide_decode_kv_held_exports")
        fallback = make.gauge("ebbtide_decode_kv_transfer_ways")
        if ways[0] != ways[1]:
            fallback.labels(*ways).set(1)
        self._drawn = 0
        self._filled = EngineStats()
        self._policy.set(-1)

    def seen(
        self, stats: EngineStats, *, policy: PolicyRef | None, unjournalled: int, outbox: int
    ) -> None:
        """Show the actor as it is now."""
        self._running.set(stats.running)
        self._waiting.set(stats.waiting)
        self._kv_used.set(stats.kv_used)
        self._kv_capacity.set(stats.kv_total)
        self._pace.set(stats.tpot)
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
        self.totals.add("kv_pulls", outcome)
        self.totals.add("kv_pulls", "expired", by=0)  # shown from the start: an alert sees it rise
        self.totals.add("kv_bytes", "in", by=size)
        if size:
            self.totals.add("kv_pull_seconds", by=seconds)

    def prompt(self, outcome: str, size: int = 0) -> None:
        """A prompt was asked for. outcome: imported | miss | expired | refused | silent | unfit."""
        self.totals.add("prompt_requests", outcome)
        self.totals.add("kv_bytes", "in", by=size)

    def exported(self, size: int) -> None:
        """KV of so many bytes is held for a reader; 0: it could not be."""
        self.totals.add("kv_exports", "held" if size else "failed")
        self.totals.add("kv_bytes", "out", by=size)

    def holds(self, exports: int) -> None:
        """So many exports may still be read."""
        self._held.set(exports)

    def loaded(self, seconds: float, size: int) -> None:
        """A policy of `size` bytes was loaded in so many seconds."""
        self._load.observe(seconds)
        self.totals.add("loads", "loaded")
        self.totals.add("load_seconds", by=seconds)
        self.totals.add("load_bytes", by=size)

    def not_loaded(self) -> None:
        """A policy could not be loaded."""
        self._load_failures.inc()
        self.totals.add("loads", "failed")


def _reason(fact: Terminal) -> str:
    match fact:
        case Cut():
            return "cut"
        case Failed(code=code):
            return code
        case _:
            return fact.finish
