"""What the prefill service counts."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from ebbtide.metrics import SECONDS
from ebbtide.wire import Granted, PrefillBeat, TicketReply


class PrefillMetrics:
    """`seen` shows the state, the rest counts as it happens."""

    def __init__(self, registry: CollectorRegistry) -> None:
        def gauge(name: str, about: str) -> Gauge:
            return Gauge(f"ebbtide_prefill_{name}", about, registry=registry)

        def counter(name: str, about: str) -> Counter:
            return Counter(f"ebbtide_prefill_{name}", about, registry=registry)

        self._waiting = gauge("waiting", "Requests without an answer")
        self._open = gauge("open_exports", "Exports that may still be read")
        self._policy = gauge("policy_version", "Version that is held; -1 for none")
        self._answers = Counter(
            "ebbtide_prefill_requests", "Requests by answer", ["answer"], registry=registry
        )
        self._prompts = counter("prompts", "Prompts computed")
        self._tokens = counter("tokens", "Prompt tokens computed")
        self._shared = counter("shared_tokens", "Prompt tokens taken from prompts that begin alike")
        self._granted = counter("granted_tokens", "Prompt tokens that readers need not compute")
        self._seconds = Histogram(
            "ebbtide_prefill_seconds",
            "Time to compute a prompt",
            buckets=SECONDS,
            registry=registry,
        )
        self._loads = Counter(
            "ebbtide_prefill_loads", "Tries to load a policy", ["outcome"], registry=registry
        )
        self._past = (0, 0)
        self._policy.set(-1)

    def seen(self, beat: PrefillBeat, *, exports: int) -> None:
        """Show the service as it is now."""
        self._waiting.set(beat.waiting)
        self._open.set(exports)
        self._policy.set(beat.policy.n if beat.policy else -1)
        tokens, shared = beat.stats.prefill_tokens, beat.stats.prefill_shared
        self._tokens.inc(max(0, tokens - self._past[0]))
        self._shared.inc(max(0, shared - self._past[1]))
        self._past = (tokens, shared)

    def answered(self, reply: TicketReply) -> None:
        """Count a request by what it got: granted, or the code of the refusal."""
        if isinstance(reply, Granted):
            self._granted.inc(reply.ticket.key.n_tokens)
        self._answers.labels("granted" if isinstance(reply, Granted) else reply.code).inc()

    def computed(self, seconds: float) -> None:
        """A prompt was computed, with whatever was computed along with it."""
        self._prompts.inc()
        self._seconds.observe(seconds)

    def loaded(self, *, well: bool) -> None:
        """A policy was loaded, or could not be."""
        self._loads.labels("loaded" if well else "failed").inc()
